"""The loop of a client hears of the end of a process of this machine, as asyncio's does: R-CLI3."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from storage_engine.client.zookeeper_consumer.watched_descriptors import WatchedDescriptors
from storage_engine.net.blocking import wait_readable
from storage_engine.net.local_processes import LocalProcesses


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(("sleep", "600")) as process:
        yield process
        process.kill()


def test_a_loop_that_polls_is_told_in_the_turn_after_the_end_and_only_once(sleeper):
    descriptors = WatchedDescriptors()
    process = LocalProcesses(descriptors).open(sleeper.pid)
    assert process is not None
    ends: list[str] = []
    process.when_ended(lambda: ends.append("ended"))
    descriptors.turn()
    assert ends == [] and len(list(descriptors.sockets())) == 1
    os.kill(sleeper.pid, 9)
    assert wait_readable(descriptors.sockets(), 10_000)
    descriptors.turn()
    descriptors.turn()
    assert ends == ["ended"] and not list(descriptors.sockets())
