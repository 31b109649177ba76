"""`headrace broker CONFIG`: one broker in the foreground, on a ZooKeeper of somebody else's."""

import signal
import subprocess
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import (
    COMMAND,
    ROOT,
    cluster_json,
    fail,
    headrace,
    listens,
    processes_of,
    succeed,
)
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.broker_settings import format_properties
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import start_embedded


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory):
    server = start_embedded(
        tmp_path_factory.mktemp("zookeeper"), port=find_free_port("127.0.0.1"), unsafe_no_fsync=True
    )
    yield server.connect
    server.stop()


def _write_config(directory: Path, zookeeper: str, broker_id: int) -> tuple[Path, str]:
    """The file, and the address that the broker will listen on."""
    address = f"127.0.0.1:{find_free_port('127.0.0.1')}"
    config = directory / f"server-{broker_id}.properties"
    config.write_text(
        format_properties(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{address}",
                "log.dirs": str(directory / "data"),
                "zookeeper.connect": zookeeper,
                "default.replication.factor": "1",
            }
        )
    )
    return config, address


def _limits(pid: int) -> tuple[str, str]:
    """Soft and hard limit of open files."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    *_, soft, hard, _unit = next(line for line in lines if line.startswith("Max open")).split()
    return soft, hard


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=in_full)])
def test_a_broker_serves_until_a_signal_and_then_exits_with_0(
    tmp_path: Path, zookeeper: str, number: signal.Signals
) -> None:
    config, address = _write_config(tmp_path, f"{zookeeper}/{number.name}", 1)
    command = subprocess.Popen(
        [*COMMAND, "broker", str(config), "--set", "num.partitions=4"],
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        wait_until(lambda: listens(address), "the broker listens")
        at = ("--bootstrap-server", address)
        created = succeed("topics", "create", "t", *at)
        assert created == "topic 't' created: 4 partitions, 1 replica each\n"
        soft, hard = _limits(command.pid)
        assert soft == hard
        command.send_signal(number)
        _, errors = command.communicate(timeout=60)
        assert command.returncode == 0, errors.decode()
        assert b"broker 1 stopped" in errors
    finally:
        command.kill()
        command.wait()
    assert not listens(address)


def test_a_data_folder_of_another_broker_is_refused_in_one_line(
    tmp_path: Path, zookeeper: str
) -> None:
    config, address = _write_config(tmp_path, f"{zookeeper}/other", 1)
    command = subprocess.Popen(
        [*COMMAND, "broker", str(config)], stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        wait_until(lambda: listens(address), "the broker listens")
    finally:
        command.terminate()
        command.wait(60)
    other, _ = _write_config(tmp_path, f"{zookeeper}/other", 2)
    error = fail("broker", other)
    assert str(tmp_path / "data") in error
    assert "1" in error and "2" in error


def test_up_takes_a_zookeeper_of_somebody_elses_and_leaves_it_alone(
    tmp_path: Path, zookeeper: str
) -> None:
    directory = tmp_path / "cluster"
    hosts = f"{zookeeper}/shared"
    try:
        arguments = ("--brokers", "1", "--port", "0", "--detach")
        succeed("up", "--no-console", "--dir", directory, "--zookeeper", hosts, *arguments)
        cluster = cluster_json(directory)
        assert (cluster["zookeeper"], cluster["zookeeper_pid"]) == (hosts, None)
        assert processes_of(directory) == [cluster["brokers"][0]["pid"]]
        succeed("down", "--dir", directory)
        assert processes_of(directory) == []
        assert listens(zookeeper)
    finally:
        headrace("down", "--dir", directory)


def test_a_zookeeper_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    error = fail(
        "up",
        "--no-console",
        "--dir",
        directory,
        "--zookeeper",
        "127.0.0.1:1",
        "--port",
        "0",
        "--detach",
    )
    assert error.startswith("no ZooKeeper at '127.0.0.1:1'")
    assert not (directory / "cluster.json").exists()
