"""An embedded ZooKeeper for all tests of this folder, and sessions on it."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.zookeeper.access import ANYBODY, ZooKeeperAccess
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, start_embedded
from storage_engine.zookeeper.session import ZooKeeperSession

SESSION_TIMEOUT_MS = 1_500

OpenSession = Callable[..., ZooKeeperSession]


@pytest.fixture(scope="package")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = start_embedded(tmp_path_factory.mktemp("zookeeper"), unsafe_no_fsync=True)
    yield server
    server.stop()


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    """A root of its own for every test."""
    return "/" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]


@pytest.fixture
def loop() -> HandLoop:
    return HandLoop()


@pytest.fixture
def open_session(
    zookeeper: EmbeddedZooKeeper, chroot: str, loop: HandLoop
) -> Iterator[OpenSession]:
    """Opens sessions that the test need not close."""
    sessions: list[ZooKeeperSession] = []

    def open_one(
        data_dir: Path | None = None,
        *,
        connect: str | None = None,
        access: ZooKeeperAccess = ANYBODY,
    ) -> ZooKeeperSession:
        session = ZooKeeperSession(
            connect or zookeeper.connect + chroot,
            SESSION_TIMEOUT_MS,
            loop.call_soon,
            clock=RealClock(),
            data_dir=data_dir,
            access=access,
        )
        sessions.append(session)
        session.start(10_000)
        return session

    yield open_one
    for session in sessions:
        session.close()


@pytest.fixture
def session(open_session: OpenSession) -> ZooKeeperSession:
    return open_session()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
