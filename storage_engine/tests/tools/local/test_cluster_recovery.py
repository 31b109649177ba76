"""A cluster whose cluster.json was lost."""

from pathlib import Path

import pytest

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_settings import write_settings
from storage_engine.tools.local.cluster_file import SECURITY
from storage_engine.tools.local.cluster_recovery import recover_cluster


def _write(directory: Path, folder: int, **changes: str) -> None:
    settings = {
        "broker.id": str(folder),
        "listeners": f"PLAINTEXT://127.0.0.1:{9091 + folder}",
        "log.dirs": str(directory / f"broker-{folder}" / "data"),
        "zookeeper.connect": "127.0.0.1:2181",
    }
    settings.update({key.replace("_", "."): value for key, value in changes.items()})
    write_settings(directory / f"broker-{folder}" / "server.properties", settings)


def test_a_folder_without_brokers_is_no_cluster(tmp_path: Path) -> None:
    assert recover_cluster(tmp_path) is None


def test_brokers_ports_and_zookeeper_come_from_their_files(tmp_path: Path) -> None:
    _write(tmp_path, 2)
    _write(tmp_path, 1, listeners="PLAINTEXT://0.0.0.0:7000")
    (tmp_path / "zookeeper").mkdir()
    (tmp_path / "zookeeper" / "zoo.cfg").touch()
    cluster = recover_cluster(tmp_path)
    assert cluster is not None
    assert [(entry.id, entry.address) for entry in cluster.brokers] == [
        (1, "127.0.0.1:7000"),
        (2, "127.0.0.1:9093"),
    ]
    assert (cluster.zookeeper, cluster.zookeeper_dir) == ("127.0.0.1:2181", "zookeeper")


def test_without_a_folder_of_its_own_the_zookeeper_is_somebody_elses(tmp_path: Path) -> None:
    _write(tmp_path, 1, zookeeper_connect="a:1,b:2/kafka")
    cluster = recover_cluster(tmp_path)
    assert cluster is not None
    assert (cluster.zookeeper, cluster.zookeeper_dir) == ("a:1,b:2/kafka", None)


def test_a_secured_cluster_is_known_by_the_settings_of_its_super_user(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    (tmp_path / "admin.properties").touch()
    cluster = recover_cluster(tmp_path)
    assert cluster is not None
    assert cluster.security == SECURITY


def test_brokers_of_two_clusters_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    _write(tmp_path, 2, zookeeper_connect="127.0.0.1:2182")
    with pytest.raises(CommandError, match=r"different values of zookeeper\.connect"):
        recover_cluster(tmp_path)


def test_a_broker_in_the_folder_of_another_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 1, broker_id="2")
    with pytest.raises(CommandError, match=r"has broker\.id=2, which belongs into"):
        recover_cluster(tmp_path)
