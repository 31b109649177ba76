"""The watcher of a broker, from the broker's side: R-CTL12."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from storage_engine.tests.broker.watcher.conftest import Owner, soon
from storage_engine.zookeeper.embedded import has_ended

QUICK_MS = 2_000


def test_the_session_of_a_killed_process_is_closed(owner: Owner, client: KazooClient) -> None:
    assert client.exists(owner.node)
    owner.kill()
    soon(lambda: not client.exists(owner.node))
    soon(lambda: has_ended(owner.watcher))
    assert f"broker 7: its process {owner.process.pid} has ended, and session 0x" in owner.log
    assert " was closed " in owner.log


def test_what_stops_a_service_stops_no_watcher(owner: Owner, client: KazooClient) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(owner.watcher, each)
    owner.kill()
    soon(lambda: not client.exists(owner.node))


def test_the_watcher_of_a_group_of_processes_that_is_killed_lives(
    owner: Owner, client: KazooClient
) -> None:
    assert os.getsid(owner.watcher) == owner.watcher
    assert os.getpgid(owner.watcher) == owner.watcher


def test_a_session_that_was_closed_in_order_ends_the_watcher(
    owner: Owner, client: KazooClient
) -> None:
    owner.process.communicate("stop\n", timeout=60)
    assert owner.process.returncode == 0
    soon(lambda: has_ended(owner.watcher))
    assert not client.exists(owner.node)
    assert "its process" not in owner.log


def test_a_watcher_that_is_killed_is_replaced_and_told_the_session(
    owner: Owner, client: KazooClient
) -> None:
    first = owner.watcher
    os.kill(first, signal.SIGKILL)
    owner.watcher = owner.next_watcher()
    assert owner.watcher != first
    assert "watcher of broker 7 has ended with status -9" in owner.log
    owner.kill()
    soon(lambda: not client.exists(owner.node))


def test_watchers_are_started_no_oftener_than_every_so_often(
    owner_of: Callable[..., Owner],
) -> None:
    owner = owner_of(restart_s=1000)
    os.kill(owner.watcher, signal.SIGKILL)
    soon(lambda: "the next one starts in " in owner.log)
    delay_s = float(owner.log.partition("the next one starts in ")[2].split()[0])
    assert 900 < delay_s <= 1000


def test_without_a_watcher_the_session_decides(
    owner_of: Callable[..., Owner], client: KazooClient
) -> None:
    owner = owner_of(timeout_ms=QUICK_MS)
    # It must start no other one.
    os.kill(owner.process.pid, signal.SIGSTOP)
    os.kill(owner.watcher, signal.SIGKILL)
    owner.kill()
    assert client.exists(owner.node)
    soon(lambda: not client.exists(owner.node))
    assert " was closed " not in owner.log


def test_a_watcher_holds_nothing_of_its_broker(owner: Owner) -> None:
    soon(lambda: "anon_inode:[pidfd]" in held_by(owner.watcher))
    held = [each for each in held_by(owner.watcher) if each != "/dev/null"]
    assert [each.partition(":")[0] for each in sorted(held)] == ["anon_inode", "pipe"]


def held_by(pid: int) -> list[str]:
    """Without what it closes just now: it opens and closes the modules that it loads."""
    held = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.append(str(each.readlink()))
    return held


def test_no_password_can_be_seen_from_outside(owner: Owner) -> None:
    arguments = Path(f"/proc/{owner.watcher}/cmdline").read_bytes().split(b"\0")[1:-1]
    assert arguments == [
        b"-P", b"-m", b"storage_engine.broker.watcher.program",
        str(owner.process.pid).encode(), b"7",
    ]  # fmt: skip
