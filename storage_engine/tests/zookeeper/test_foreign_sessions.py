"""The end of sessions of others: R-CTL12."""

import threading

import pytest

from storage_engine.core.ports import SessionState, ZkStatus
from storage_engine.tests.zookeeper.conftest import SESSION_TIMEOUT_MS, OpenSession
from storage_engine.tests.zookeeper.loop import HandLoop
from storage_engine.zookeeper.access import ANYBODY
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper
from storage_engine.zookeeper.foreign_sessions import MAX_AT_ONCE, ThreadedForeignSessions
from storage_engine.zookeeper.session_credentials import SessionCredentials, SessionZNode


@pytest.fixture
def sessions(zookeeper: EmbeddedZooKeeper, loop: HandLoop) -> ThreadedForeignSessions:
    return ThreadedForeignSessions(
        zookeeper.connect, SESSION_TIMEOUT_MS, loop.call_soon, access=ANYBODY
    )


def test_a_closed_session_loses_its_nodes_and_its_living_owner_is_told(
    open_session: OpenSession, loop: HandLoop, sessions: ThreadedForeignSessions
) -> None:
    owner, other = open_session(), open_session()
    first = owner.session_id
    states: list[SessionState] = []
    owner.add_state_listener(states.append)
    assert loop.reply_of(owner.create, "/mine", b"", ephemeral=True).ok
    over: list[bool] = []
    sessions.end(first, owner.session_password, over.append)
    loop.run_until(lambda: SessionState.LOST in states and owner.session_id not in (0, first))
    assert loop.reply_of(other.exists, "/mine").status is ZkStatus.NO_NODE
    loop.run_until(lambda: over == [True])
    assert len(owner.session_password) == 16


def test_a_session_that_several_close_ends_once(
    open_session: OpenSession, loop: HandLoop, sessions: ThreadedForeignSessions
) -> None:
    owner, other = open_session(), open_session()
    states: list[SessionState] = []
    owner.add_state_listener(states.append)
    over: list[bool] = []
    for _ in range(6):
        sessions.end(owner.session_id, owner.session_password, over.append)
    loop.run_until(lambda: len(over) == 6)
    loop.run_until(lambda: SessionState.LOST in states)
    loop.run_until(lambda: states[-1] is SessionState.CONNECTED)
    assert states.count(SessionState.LOST) == 1
    assert other.state is SessionState.CONNECTED


def test_a_wrong_password_closes_nothing(
    open_session: OpenSession, loop: HandLoop, sessions: ThreadedForeignSessions
) -> None:
    owner = open_session()
    first = owner.session_id
    over: list[bool] = []
    sessions.end(first, b"x" * 16, over.append)
    loop.run_until(lambda: bool(over))
    loop.run_for(0.5)
    assert owner.session_id == first
    assert loop.reply_of(owner.exists, "/").ok


def test_without_a_server_an_attempt_ends_and_says_so(loop: HandLoop, unused_port: int) -> None:
    sessions = ThreadedForeignSessions(
        f"127.0.0.1:{unused_port}", 500, loop.call_soon, access=ANYBODY
    )
    over: list[bool] = []
    sessions.end(1, b"x" * 16, over.append)
    loop.run_until(lambda: over == [False])


def test_no_password_is_shown(
    open_session: OpenSession,
    loop: HandLoop,
    sessions: ThreadedForeignSessions,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kazoo would write it among its most detailed lines."""
    caplog.set_level(1)
    owner = open_session()
    password = owner.session_password
    over: list[bool] = []
    sessions.end(owner.session_id, password, over.append)
    loop.run_until(lambda: bool(over))
    node = SessionZNode(password=password)
    credentials = SessionCredentials(session_id=1, password=password)
    shown = f"{caplog.text} {node!r} {credentials!r}"
    assert "closed" in shown
    assert password.hex() not in shown
    assert repr(password) not in shown


def test_a_thread_that_can_not_be_started_is_a_failed_attempt_and_holds_up_no_later_one(
    monkeypatch,
):
    loop = HandLoop()
    sessions = ThreadedForeignSessions("127.0.0.1:1", 1_000, loop.call_soon, access=ANYBODY)

    def refused(thread):
        raise RuntimeError("can't start new thread")

    outcomes: list[bool] = []
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refused)
        for number in range(MAX_AT_ONCE + 2):
            sessions.end(number, b"secret", outcomes.append)
            loop.run_until(lambda count=number + 1: len(outcomes) == count)
    assert outcomes == [False] * (MAX_AT_ONCE + 2)
    assert sessions._under_way == 0
