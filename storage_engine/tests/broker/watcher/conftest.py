"""A ZooKeeper of its own for these tests, and owners of sessions on it."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, has_ended, start_embedded

LONG_MS = 60_000
BEFORE_IT_EXPIRES_S = 45
"""A wait that ends before a session of LONG_MS does."""


def soon(condition: Callable[[], object]) -> None:
    """Wait, less than a session of LONG_MS lives."""
    until_s = time.monotonic() + BEFORE_IT_EXPIRES_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Owner:
    """A process that owns a session, a znode and a watcher."""

    def __init__(self, process: subprocess.Popen[str], node: str, log_file: Path) -> None:
        self.process = process
        self.node = node
        self._log_file = log_file
        self.watcher = self.next_watcher()

    def next_watcher(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="package")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = start_embedded(tmp_path_factory.mktemp("zookeeper"), unsafe_no_fsync=True)
    yield server
    server.stop()


@pytest.fixture
def client(zookeeper: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    made = KazooClient(zookeeper.connect)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def owner_of(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Callable[..., Owner]]:
    """Starts owners; their processes, and those of their watchers, are gone after the test."""
    owners: list[Owner] = []

    def start(*, timeout_ms: int = LONG_MS, restart_s: float = 0.1) -> Owner:
        node = f"/{uuid.uuid4()}"
        log_file = tmp_path / f"owner-{len(owners)}.log"
        program = ["-P", "-m", "storage_engine.tests.broker.watcher.owner"]
        arguments = [zookeeper.connect, str(timeout_ms), node, str(restart_s)]
        process = subprocess.Popen(
            [sys.executable, *program, *arguments, str(log_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[4])},
        )
        owners.append(Owner(process, node, log_file))
        return owners[-1]

    yield start
    for owner in owners:
        owner.kill()
        soon(lambda owner=owner: has_ended(owner.watcher))


@pytest.fixture
def owner(owner_of: Callable[..., Owner]) -> Owner:
    return owner_of()
