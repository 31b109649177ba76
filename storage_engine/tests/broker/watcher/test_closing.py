"""A session is closed by whichever server answers, and when one answers again."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from storage_engine.broker.watcher.told import WatchedBroker, session_line
from storage_engine.tests.broker.watcher.conftest import BEFORE_IT_EXPIRES_S, LONG_MS, soon
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, start_embedded
from storage_engine.zookeeper.session_credentials import SessionCredentials

NODE = "/owned"
NOT_ITS_PARENT = 1
"""A living process whose number the broker had, as it looks to a watcher."""


@pytest.fixture
def orphan(zookeeper: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    """A client whose session somebody else closes."""
    made = KazooClient(zookeeper.connect, timeout=LONG_MS / 1000)
    made.start()
    made.create(NODE, ephemeral=True)
    yield made
    made.stop()
    made.close()


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that a test stops."""
    server = start_embedded(tmp_path / "restarted", unsafe_no_fsync=True)
    yield server
    server.stop()


def session_of(client: KazooClient) -> SessionCredentials:
    session_id, password = client.client_id
    return SessionCredentials(session_id=session_id, password=password)


def watcher(
    session: SessionCredentials, connect: str, log_file: Path, *, timeout_ms: int = LONG_MS
) -> subprocess.Popen[bytes]:
    """The watcher of a broker that had that session, and has ended before the watcher has
    opened its process."""
    broker = WatchedBroker(
        broker_id=1,
        pid=NOT_ITS_PARENT,
        connect=connect,
        session_timeout_ms=timeout_ms,
        log_file=str(log_file),
    )
    program = ["-P", "-m", "storage_engine.broker.watcher.program", str(NOT_ITS_PARENT), "1"]
    process = subprocess.Popen(
        [sys.executable, *program],
        stdin=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[4])},
    )
    assert process.stdin is not None
    process.stdin.write(broker.encode() + session_line(session))
    process.stdin.close()
    return process


def test_another_process_with_the_number_of_the_broker_is_not_the_broker(
    zookeeper: EmbeddedZooKeeper, orphan: KazooClient, client: KazooClient, tmp_path: Path
) -> None:
    process = watcher(session_of(orphan), zookeeper.connect, tmp_path / "log")
    assert process.wait(BEFORE_IT_EXPIRES_S) == 0
    soon(lambda: not client.exists(NODE))


def test_servers_that_do_not_answer_cost_a_moment(
    zookeeper: EmbeddedZooKeeper, orphan: KazooClient, client: KazooClient, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dark = ",".join([f"127.0.0.1:{silent.getsockname()[1]}"] * 6)
        process = watcher(session_of(orphan), f"{dark},{zookeeper.connect}", tmp_path / "log")
        assert process.wait(BEFORE_IT_EXPIRES_S) == 0
    assert not client.exists(NODE)
    assert " was closed " in (tmp_path / "log").read_text()


def test_a_zookeeper_that_is_away_is_asked_until_it_is_back(
    restarted: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    owner = KazooClient(restarted.connect, timeout=LONG_MS / 1000)
    owner.start()
    owner.create(NODE, ephemeral=True)
    session = session_of(owner)
    restarted.stop()
    process = watcher(session, restarted.connect, tmp_path / "log")
    # The first attempt has failed.
    soon((tmp_path / "log").exists)
    back = start_embedded(restarted.data_dir, port=restarted.port, unsafe_no_fsync=True)
    # The owner itself may hang at a server that listened before it served, as long as its session.
    onlooker = KazooClient(back.connect, timeout=LONG_MS / 1000)
    try:
        assert process.wait(BEFORE_IT_EXPIRES_S) == 0
        onlooker.start()
        assert not onlooker.exists(NODE)
        assert " was closed " in (tmp_path / "log").read_text()
    finally:
        for client in (owner, onlooker):
            client.stop()
            client.close()
        back.stop()


def test_a_watcher_gives_up_when_the_session_must_have_expired(
    zookeeper: EmbeddedZooKeeper, orphan: KazooClient, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    process = watcher(session_of(orphan), nobody, tmp_path / "log", timeout_ms=100)
    assert process.wait(BEFORE_IT_EXPIRES_S) == 1
    assert "was not closed: it has expired, or expires later" in (tmp_path / "log").read_text()


def test_a_session_that_has_ended_is_told_as_ended(
    zookeeper: EmbeddedZooKeeper, orphan: KazooClient, tmp_path: Path
) -> None:
    session = session_of(orphan)
    first = watcher(session, zookeeper.connect, tmp_path / "log")
    assert first.wait(BEFORE_IT_EXPIRES_S) == 0
    again = watcher(session, zookeeper.connect, tmp_path / "again")
    assert again.wait(BEFORE_IT_EXPIRES_S) == 0
    assert " had ended " in (tmp_path / "again").read_text()
