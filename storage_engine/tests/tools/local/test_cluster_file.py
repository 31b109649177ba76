"""cluster.json: the contract with other programs, and what a damaged file leads to."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile


def _cluster() -> ClusterFile:
    brokers = [BrokerEntry.for_id(i, "127.0.0.1", 9091 + i) for i in (1, 2, 3)]
    return ClusterFile(
        zookeeper="127.0.0.1:2181",
        zookeeper_pid=411,
        zookeeper_dir="zookeeper",
        brokers=(replace(brokers[0], pid=422, metrics="127.0.0.1:19092"), *brokers[1:]),
    )


def test_what_is_written_has_the_documented_keys(tmp_path: Path) -> None:
    cluster_file.write(tmp_path, _cluster())
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert document["zookeeper"] == "127.0.0.1:2181"
    assert document["zookeeper_pid"] == 411
    assert document["bootstrap_servers"] == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert document["brokers"][0] == {
        "id": 1,
        "host": "127.0.0.1",
        "port": 9092,
        "pid": 422,
        "data_dir": "broker-1/data",
        "config": "broker-1/server.properties",
        "log_file": "broker-1/broker.log",
        "metrics": "http://127.0.0.1:19092/metrics",
    }
    assert document["brokers"][1]["metrics"] is None
    assert document["brokers"][1]["pid"] is None


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    cluster_file.write(tmp_path, _cluster())
    assert cluster_file.read(tmp_path) == _cluster()
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_file_with_further_keys_is_read(tmp_path: Path) -> None:
    cluster_file.write(tmp_path, _cluster())
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": "mine"}))
    assert cluster_file.read(tmp_path) == _cluster()


def test_a_folder_without_a_cluster_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no cluster in .* headrace up --dir") as caught:
        cluster_file.read(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"brokers": []}, "'brokers' must be a list that is not empty"),
        ({"brokers": "no"}, "'brokers' must be a list that is not empty"),
        ({"brokers": [7]}, r"'brokers\[0\]' must be an object"),
        ({"zookeeper": 5}, "'zookeeper' must be a string"),
        ({"zookeeper_pid": 1}, "'zookeeper_pid' must be a whole number from 2"),
        ({"zookeeper_pid": -4}, "'zookeeper_pid' must be a whole number from 2"),
        ({"zookeeper_dir": "/etc"}, "'zookeeper_dir' must be a path within the cluster's folder"),
    ],
)
def test_a_foreign_file_is_one_line_that_names_the_place(
    tmp_path: Path, change: dict, problem: str
) -> None:
    cluster_file.write(tmp_path, _cluster())
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CommandError, match=problem) as caught:
        cluster_file.read(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"port": 0}, r"'brokers\[1\].port' must be a whole number from 1 to 65535"),
        ({"port": True}, r"'brokers\[1\].port' must be"),
        ({"id": 1}, "two brokers have the same id"),
        ({"port": 9092}, "two brokers have the same address"),
        ({"pid": "422"}, r"'brokers\[1\].pid' must be"),
        ({"pid": 0}, r"'brokers\[1\].pid' must be"),
        ({"data_dir": "../other"}, r"'brokers\[1\].data_dir' must be a path within"),
        ({"config": "/etc/passwd"}, r"'brokers\[1\].config' must be a path within"),
    ],
)
def test_a_broker_that_cannot_be_is_refused(tmp_path: Path, change: dict, problem: str) -> None:
    cluster_file.write(tmp_path, _cluster())
    path = tmp_path / "cluster.json"
    document = json.loads(path.read_text())
    document["brokers"][1].update(change)
    path.write_text(json.dumps(document))
    with pytest.raises(CommandError, match=problem):
        cluster_file.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe\x00", b"null"])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    with pytest.raises(CommandError, match="is not a file that 'headrace up' wrote"):
        cluster_file.read(tmp_path)


def test_a_broker_that_is_not_in_the_cluster_is_named_with_those_that_are() -> None:
    with pytest.raises(CommandError, match="no broker 7 in this cluster; its brokers are 1, 2, 3"):
        _cluster().broker(7)
