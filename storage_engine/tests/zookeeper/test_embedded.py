"""The embedded ZooKeeper as a child process, and the Java that it needs."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.zookeeper import embedded
from storage_engine.zookeeper.embedded import (
    HOST,
    EmbeddedZooKeeper,
    attach_embedded,
    start_embedded,
)
from storage_engine.zookeeper.server.program import ZooKeeperServerError, is_serving
from storage_engine.zookeeper.session import ZooKeeperSession


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    started = start_embedded(tmp_path / "zookeeper", unsafe_no_fsync=True)
    yield started
    started.stop()


def test_it_serves_on_a_free_port_of_this_machine_only(server: EmbeddedZooKeeper) -> None:
    assert is_serving(HOST, server.port)
    assert server.connect == f"127.0.0.1:{server.port}"
    # The first is missing where the machine has no IPv6.
    tables = [Path("/proc/net/tcp6"), Path("/proc/net/tcp")]
    listening = "".join(table.read_text() for table in tables if table.exists())
    addresses = {
        line.split()[1].split(":")[0]
        for line in listening.splitlines()
        if f":{server.port:04X} " in line and " 0A " in line
    }
    assert addresses == {"0000000000000000FFFF00000100007F"} or addresses == {"0100007F"}


def test_stop_leaves_no_process_and_no_port(server: EmbeddedZooKeeper) -> None:
    server.stop()
    assert not server.is_alive()
    assert not Path(f"/proc/{server.pid}/cmdline").exists()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, server.port))
    assert attach_embedded(server.data_dir) is None
    server.stop()  # harmless


def test_another_process_finds_and_stops_it(server: EmbeddedZooKeeper) -> None:
    found = attach_embedded(server.data_dir)
    assert found is not None
    assert (found.pid, found.port) == (server.pid, server.port)
    found.stop()
    assert not server.is_alive()
    assert not is_serving(HOST, server.port)
    start_embedded(server.data_dir, port=server.port, unsafe_no_fsync=True).stop()


def test_a_pid_that_now_belongs_to_another_process_is_not_it(tmp_path: Path) -> None:
    (tmp_path / "zookeeper.pid").write_text(f"{os.getpid()} 2181\n")
    assert attach_embedded(tmp_path) is None


def test_a_second_one_on_the_same_folder_is_refused(server: EmbeddedZooKeeper) -> None:
    with pytest.raises(ZooKeeperServerError, match="runs already on"):
        start_embedded(server.data_dir)


def test_a_port_in_use_is_told(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperServerError) as caught:
        start_embedded(tmp_path / "other", port=server.port)
    assert str(caught.value) == (
        f"port {server.port} of 127.0.0.1 can't be used for ZooKeeper "
        "(Address already in use): choose another"
    )


def test_data_survive_sigkill(tmp_path: Path) -> None:
    loop = HandLoop()
    first = start_embedded(tmp_path)
    session = ZooKeeperSession(first.connect, 5_000, loop.call_soon, clock=RealClock())
    session.start(10_000)
    try:
        assert loop.reply_of(session.create, "/kept", b"data").ok
        os.kill(first.pid, signal.SIGKILL)
        assert first.process is not None
        first.process.wait()
        second = start_embedded(tmp_path, port=first.port)
        try:
            loop.run_until(lambda: loop.reply_of(session.get, "/kept").data == b"data")
        finally:
            second.stop()
    finally:
        session.close(100)


def test_it_outlives_its_parent_and_holds_none_of_its_descriptors(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from storage_engine.zookeeper.embedded import start_embedded\n"
        "server = start_embedded(Path(sys.argv[1]), unsafe_no_fsync=True)\n"
        "print(server.pid, server.port, flush=True)\n"
    )
    # `run` returns at the end of the pipe only: nobody else must hold it.
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, timeout=30, check=True
    )
    pid, port = map(int, result.stdout.split())
    found = attach_embedded(tmp_path)
    assert found is not None
    try:
        assert found.pid == pid
        assert is_serving(HOST, port)
        assert os.getsid(pid) == pid
    finally:
        found.stop()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooKeeperServerError, match="can't be written"):
        start_embedded(tmp_path / "file" / "zookeeper")


def test_a_start_that_fails_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "MAIN_CLASS", "no.such.Main")
    with pytest.raises(ZooKeeperServerError) as caught:
        start_embedded(tmp_path)
    assert "no.such.Main" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_pyspark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ZooKeeperServerError, match="pip install pyspark"):
        start_embedded(tmp_path)


def test_it_is_up_soon(tmp_path: Path) -> None:
    began_s = time.monotonic()
    started = start_embedded(tmp_path, unsafe_no_fsync=True)
    up_s = time.monotonic() - began_s
    started.stop()
    assert up_s < 15  # 0.3 s on an idle machine
