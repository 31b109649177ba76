"""`stop-broker`, `start-broker`: same data, same port, and `cluster.json` says what is true."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from integration_tests.support.command_line import (
    cluster_json,
    fail,
    processes_of,
    succeed,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("cluster")
    with running_cluster(path, has_zookeeper=True) as cluster:
        create_topic(cluster, "t", partitions=3)
        yield path
    assert processes_of(path) == []


def _status(directory: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(succeed("status", "--dir", directory, "--json"))
    return status


def _wait_until_in_sync(directory: Path) -> None:
    wait_until(lambda: _status(directory)["under_replicated"] == [], "all replicas in sync")


def test_a_killed_broker_is_started_at_once_on_its_data_and_port(directory: Path) -> None:
    servers = cluster_json(directory)["bootstrap_servers"]
    lines = b"".join(b"%d\n" % i for i in range(1000))
    succeed("produce", "t", "--bootstrap-server", servers, stdin=lines)
    before = cluster_json(directory)["brokers"][1]
    os.kill(before["pid"], signal.SIGKILL)
    succeed("start-broker", "--dir", directory, "2")
    after = cluster_json(directory)["brokers"][1]
    assert after["port"] == before["port"]
    assert after["pid"] not in (None, before["pid"])
    _wait_until_in_sync(directory)
    read = succeed("consume", "t", "--bootstrap-server", servers, "--exit-at-end")
    assert sorted(map(int, read.split())) == list(range(1000))


def test_a_killed_broker_shows_as_dead(directory: Path) -> None:
    os.kill(cluster_json(directory)["brokers"][2]["pid"], signal.SIGKILL)
    try:
        wait_until(
            lambda: (
                [broker["alive"] for broker in _status(directory)["brokers"]] == [True, True, False]
            ),
            "broker 3 is dead",
        )
        assert "no" in succeed("status", "--dir", directory).splitlines()[5]
    finally:
        succeed("start-broker", "--dir", directory, "3")
        _wait_until_in_sync(directory)


def test_a_stopped_broker_hands_over_and_comes_back(directory: Path) -> None:
    assert succeed("stop-broker", "--dir", directory, "1") == "broker 1 stopped\n"
    assert cluster_json(directory)["brokers"][0]["pid"] is None
    status = _status(directory)
    assert [broker["alive"] for broker in status["brokers"]] == [False, True, True]
    assert status["offline"] == []

    def is_known() -> bool:
        status = _status(directory)
        return status["controller"] in (2, 3) and len(status["under_replicated"]) == 3

    # Whom the command asks may hear of it a moment after the one that has stopped.
    wait_until(is_known, "the others know it")
    assert succeed("stop-broker", "--dir", directory, "1") == "broker 1 was not running\n"

    assert succeed("start-broker", "--dir", directory, "1") == "broker 1 started\n"
    assert succeed("start-broker", "--dir", directory, "1") == "broker 1 runs already\n"
    _wait_until_in_sync(directory)


def test_the_pid_of_another_process_is_not_taken_for_a_broker(directory: Path) -> None:
    path = directory / "cluster.json"
    true = path.read_text()
    document = json.loads(true)
    document["brokers"][0]["pid"] = os.getpid()
    path.write_text(json.dumps(document))
    try:
        status = _status(directory)
        assert status["brokers"][0]["pid"] == json.loads(true)["brokers"][0]["pid"]
    finally:
        path.write_text(true)


def test_a_broker_that_does_not_exist_is_one_line(directory: Path) -> None:
    for command in ("stop-broker", "start-broker"):
        error = fail(command, "--dir", directory, "9")
        assert error == "there is no broker 9 in this cluster; its brokers are 1, 2, 3"


def test_a_damaged_cluster_file_is_one_line_and_stops_nothing(directory: Path) -> None:
    path = directory / "cluster.json"
    true = path.read_text()
    try:
        path.write_text(true[:-20])
        for command in (
            ["status"],
            ["down"],
            ["start-broker", "1"],
            ["up", "--no-console", "--detach"],
        ):
            error = fail(*command, "--dir", directory)
            assert error.startswith(f"'{path}' is not a file that 'headrace up' wrote: it is not")
        assert len(processes_of(directory)) == 4
    finally:
        path.write_text(true)
