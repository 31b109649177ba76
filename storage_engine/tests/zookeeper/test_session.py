"""The life of a session: how it begins, is lost, and ends. Source: R-REP11, R-CTL4."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.protocol.serialization import Close

from storage_engine.core.ports import SessionState, ZkReply, ZkStatus
from storage_engine.tests.zookeeper.conftest import SESSION_TIMEOUT_MS, OpenSession
from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, start_embedded
from storage_engine.zookeeper.foreign_sessions import ZooKeeperUnreachableError
from storage_engine.zookeeper.session import ZooKeeperSession
from storage_engine.zookeeper.session_credentials import SessionCredentials

NONE = SessionCredentials(session_id=0, password=b"")


def test_a_session_that_is_longer_than_was_asked_for_is_told_with_the_remedy(
    zookeeper: EmbeddedZooKeeper, loop: HandLoop, caplog: pytest.LogCaptureFixture
) -> None:
    session = ZooKeeperSession(zookeeper.connect, 500, loop.call_soon, clock=RealClock())
    session.start(10_000)
    session.close()
    assert session.session_timeout_ms == 1000
    told = "set minSessionTimeout=500 in its zoo.cfg, or the broker's to 1000"
    assert sum(told in each.getMessage() for each in caplog.records) == 1


def test_a_listener_that_fails_keeps_no_other_from_hearing_of_a_lost_session(
    session: ZooKeeperSession, caplog: pytest.LogCaptureFixture
) -> None:
    """One of them fences the broker."""
    heard: list[SessionState] = []

    def fail(_state: SessionState) -> None:
        raise ValueError("on purpose")

    session.add_state_listener(fail)
    session.add_state_listener(heard.append)
    session._on_state(SessionState.LOST, NONE, 0, SESSION_TIMEOUT_MS)
    assert heard == [SessionState.LOST]
    assert any(record.exc_info for record in caplog.records)


def test_a_predecessors_ephemeral_nodes_vanish_at_once_after_sigkill(
    zookeeper: EmbeddedZooKeeper,
    open_session: OpenSession,
    loop: HandLoop,
    chroot: str,
    tmp_path: Path,
) -> None:
    """R-CTL4: a broker restarted at once after SIGKILL closes its predecessor's session."""
    script = f"""
import sys, time
from pathlib import Path
from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.zookeeper.foreign_sessions import ZooKeeperUnreachableError
from storage_engine.zookeeper.session import ZooKeeperSession
loop = HandLoop()
session = ZooKeeperSession({zookeeper.connect + chroot!r}, 30_000, loop.call_soon,
                           clock=RealClock(), data_dir=Path({str(tmp_path)!r}))
session.start(10_000)
assert loop.reply_of(session.create, "/id", b"", ephemeral=True).ok
print("ready", flush=True)
loop.run_for(60)
"""
    predecessor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert predecessor.stdout is not None
    assert predecessor.stdout.readline() == b"ready\n"
    predecessor.send_signal(signal.SIGKILL)
    predecessor.wait()
    predecessor.stdout.close()
    assert (tmp_path / "zookeeper.session").stat().st_mode & 0o777 == 0o600
    # A copy has a lock of its own, so that it proves nothing.
    shutil.copytree(tmp_path, tmp_path / "copy")
    foreigner = open_session(tmp_path / "copy")
    assert loop.reply_of(foreigner.exists, "/id").ok

    successor = open_session(tmp_path)
    assert loop.reply_of(successor.create, "/id", b"", ephemeral=True).ok


def test_a_useless_session_file_is_passed_over(
    open_session: OpenSession, loop: HandLoop, tmp_path: Path
) -> None:
    (tmp_path / "zookeeper.session").write_bytes(b"\xff")
    session = open_session(tmp_path)
    assert loop.reply_of(session.create, "/ok", b"").ok


def test_a_clean_close_ends_ephemeral_nodes_and_removes_the_file(
    open_session: OpenSession, loop: HandLoop, tmp_path: Path
) -> None:
    first, second = open_session(tmp_path), open_session()
    loop.reply_of(first.create, "/e", b"", ephemeral=True)
    first.close()
    assert not (tmp_path / "zookeeper.session").exists()
    assert loop.reply_of(second.exists, "/e").status is ZkStatus.NO_NODE
    assert loop.reply_of(first.get, "/e").status is ZkStatus.UNKNOWN


def test_operations_under_way_at_a_close_are_unknown_once(
    open_session: OpenSession, loop: HandLoop
) -> None:
    session = open_session()
    replies: list[ZkReply] = []
    for _ in range(300):
        session.get("/", replies.append)
    session.close()
    loop.run_for(0.2)
    assert len(replies) == 300


@pytest.mark.slow
def test_the_lease_is_kept_fresh_without_traffic(session: ZooKeeperSession, loop: HandLoop) -> None:
    clock = RealClock()
    for _ in range(8):
        loop.run_for(0.25)
        left_ms = session.lease_end_monotonic_ms - clock.monotonic_ms()
        assert SESSION_TIMEOUT_MS * 0.25 < left_ms <= SESSION_TIMEOUT_MS


def test_the_lease_goes_by_the_timeout_that_zookeeper_allows(
    zookeeper: EmbeddedZooKeeper, loop: HandLoop
) -> None:
    session = ZooKeeperSession(zookeeper.connect, 10, loop.call_soon, clock=RealClock())
    session.start(10_000)
    try:
        assert session.session_timeout_ms == 1_000
    finally:
        session.close()


@pytest.mark.slow
def test_a_silent_loop_loses_its_session(
    open_session: OpenSession, zookeeper: EmbeddedZooKeeper, chroot: str, loop: HandLoop
) -> None:
    """Decision 5: kazoo's own pings must not keep a hanging broker's session."""
    hanging = open_session()
    states: list[SessionState] = []
    hanging.add_state_listener(states.append)
    other_loop = HandLoop()
    other = ZooKeeperSession(
        zookeeper.connect + chroot, 5_000, other_loop.call_soon, clock=RealClock()
    )
    other.start(10_000)
    try:
        loop.reply_of(hanging.create, "/e", b"", ephemeral=True)
        loop.run_for(1.0)  # signs of life, then none
        gone: list[bool] = []
        assert other_loop.reply_of(other.exists, "/e", watch=lambda: gone.append(True)).ok
        other_loop.run_until(lambda: bool(gone))
    finally:
        other.close()
    loop.run_until(lambda: SessionState.LOST in states and states[-1] is SessionState.CONNECTED)


def test_a_server_that_is_stopped_and_started_again_is_found_again(
    tmp_path: Path, loop: HandLoop
) -> None:
    server = start_embedded(tmp_path, unsafe_no_fsync=True)
    session = ZooKeeperSession(server.connect, 15_000, loop.call_soon, clock=RealClock())
    states: list[SessionState] = []
    session.add_state_listener(states.append)
    try:
        session.start(10_000)
        first_id = session.session_id
        loop.reply_of(session.create, "/a", b"")
        fired: list[int] = []
        loop.reply_of(session.get, "/a", watch=lambda: fired.append(1))
        server.stop()
        loop.run_until(lambda: SessionState.SUSPENDED in states)
        loop.run_until(lambda: fired == [1])
        waiting: list[ZkReply] = []
        session.get("/a", waiting.append)
        server = start_embedded(tmp_path, port=server.port, unsafe_no_fsync=True)
        loop.run_until(lambda: states[-1] is SessionState.CONNECTED)
        loop.run_until(lambda: bool(waiting))
        assert waiting[0].ok
        assert session.session_id == first_id
        assert fired == [1]
    finally:
        session.close()
        server.stop()


def test_an_ended_session_is_told_as_lost_and_followed_by_another(
    open_session: OpenSession, loop: HandLoop, tmp_path: Path
) -> None:
    session = open_session(tmp_path)
    states: list[SessionState] = []
    session.add_state_listener(states.append)
    loop.reply_of(session.create, "/e", b"", ephemeral=True)
    first_id = session.session_id
    open_session(tmp_path)  # ends it as its successor would
    loop.run_until(lambda: SessionState.LOST in states)
    loop.run_until(lambda: states[-1] is SessionState.CONNECTED)
    assert session.session_id not in (0, first_id)
    assert loop.reply_of(session.exists, "/e").status is ZkStatus.NO_NODE


def test_without_a_session_operations_are_unknown_at_once(
    zookeeper: EmbeddedZooKeeper, loop: HandLoop
) -> None:
    session = ZooKeeperSession(
        zookeeper.connect, SESSION_TIMEOUT_MS, loop.call_soon, clock=RealClock()
    )
    assert loop.reply_of(session.get, "/").status is ZkStatus.UNKNOWN


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_an_operation_under_way_when_the_connection_breaks_is_unknown_once(
    tmp_path: Path, loop: HandLoop
) -> None:
    server = start_embedded(tmp_path, unsafe_no_fsync=True)
    session = ZooKeeperSession(server.connect, 1_500, loop.call_soon, clock=RealClock())
    states: list[SessionState] = []
    session.add_state_listener(states.append)
    replies: list[ZkReply] = []
    try:
        session.start(10_000)
        os.kill(server.pid, signal.SIGSTOP)
        # Its threads stop one after the other; one that still runs would answer.
        loop.run_until(lambda: is_stopped(server.pid))
        lease_end_ms = session.lease_end_monotonic_ms
        session.get("/", replies.append)
        loop.run_until(lambda: SessionState.SUSPENDED in states)
        loop.run_until(lambda: bool(replies))
        os.kill(server.pid, signal.SIGCONT)
        loop.run_until(lambda: states[-1] is SessionState.CONNECTED)
        loop.run_until(lambda: session.lease_end_monotonic_ms > lease_end_ms)
        assert [reply.status for reply in replies] == [ZkStatus.UNKNOWN]
        assert session.longest_silence_ms >= 500, "a third of the session, then it is left"
    finally:
        os.kill(server.pid, signal.SIGCONT)
        session.close()
        server.stop()


def test_no_zookeeper_is_told_in_one_line(loop: HandLoop, unused_port: int) -> None:
    session = ZooKeeperSession(
        f"127.0.0.1:{unused_port}/x", 6_000, loop.call_soon, clock=RealClock()
    )
    began_s = time.monotonic()
    with pytest.raises(ZooKeeperUnreachableError) as caught:
        session.start(500)
    assert time.monotonic() - began_s < 30
    assert str(caught.value) == (
        f"can't reach ZooKeeper at 127.0.0.1:{unused_port}/x: is it running? "
        "check zookeeper.connect; one that speaks TLS alone, as that of a secured cluster does for "
        "its brokers, needs zookeeper.ssl.client.enable"
    )
    session.close(100)


def test_each_session_is_told_when_it_exists_and_the_last_when_it_is_closed(
    zookeeper: EmbeddedZooKeeper, loop: HandLoop
) -> None:
    told: list[SessionCredentials | None] = []
    session = ZooKeeperSession(
        zookeeper.connect, 1500, loop.call_soon, clock=RealClock(), on_session=told.append
    )
    session.start(10_000)
    first = SessionCredentials(
        session_id=session.session_id, password=bytes(session._client._session_passwd)
    )
    assert told == [first]
    session.close()
    assert told == [first, None]


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that a test stops."""
    server = start_embedded(tmp_path / "restless", unsafe_no_fsync=True)
    yield server
    server.stop()


def heard_session(
    server: EmbeddedZooKeeper, loop: HandLoop, data_dir: Path
) -> tuple[ZooKeeperSession, list[SessionCredentials | None]]:
    """A session with its file, and what is told of it."""
    told: list[SessionCredentials | None] = []
    session = ZooKeeperSession(
        server.connect,
        SESSION_TIMEOUT_MS,
        loop.call_soon,
        clock=RealClock(),
        data_dir=data_dir,
        on_session=told.append,
    )
    session.start(10_000)
    return session, told


def test_a_session_whose_server_is_gone_is_not_taken_for_closed(
    restless: EmbeddedZooKeeper, tmp_path: Path, loop: HandLoop
) -> None:
    session, told = heard_session(restless, loop, tmp_path)
    states: list[SessionState] = []
    session.add_state_listener(states.append)
    restless.stop()
    loop.run_until(lambda: SessionState.SUSPENDED in states)
    session.close()
    assert not any(thread.name == "zookeeper-close" for thread in threading.enumerate())
    assert None not in told
    assert (tmp_path / "zookeeper.session").exists()


def test_a_session_whose_close_was_not_answered_is_not_taken_for_closed(
    restless: EmbeddedZooKeeper, tmp_path: Path, loop: HandLoop
) -> None:
    """The server takes the request, and is killed before it reads it."""
    session, told = heard_session(restless, loop, tmp_path)
    os.kill(restless.pid, signal.SIGSTOP)
    loop.run_until(lambda: is_stopped(restless.pid))
    closing = threading.Thread(target=session.close, args=(60_000,))
    closing.start()
    pending = session._client._pending
    loop.run_until(lambda: any(isinstance(request, Close) for request, *_ in tuple(pending)))
    os.kill(restless.pid, signal.SIGKILL)
    closing.join()
    assert not any(thread.name == "zookeeper-close" for thread in threading.enumerate())
    assert None not in told
    assert (tmp_path / "zookeeper.session").exists()


def test_a_session_that_was_never_made_leaves_its_predecessors_file(
    zookeeper: EmbeddedZooKeeper, loop: HandLoop, tmp_path: Path
) -> None:
    file = tmp_path / "zookeeper.session"
    file.write_text("of a session that may live")
    session = ZooKeeperSession(
        zookeeper.connect, 1500, loop.call_soon, clock=RealClock(), data_dir=tmp_path
    )
    session.close()
    assert file.exists()
