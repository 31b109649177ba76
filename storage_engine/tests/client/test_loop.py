"""The thread of a client: calls, timers and the work beside them."""

import threading

import pytest

from storage_engine.client.loop import ClientLoop, LoopEndedError
from storage_engine.core.errors import HeadraceError

LONG_S = 60
LONG_MS = LONG_S * 1000


@pytest.fixture
def loop():
    loop = ClientLoop("test")
    loop.start()
    yield loop
    loop.stop()
    loop.join(LONG_MS)


def test_calls_come_before_timers_and_timers_in_the_order_of_their_times(loop):
    ran: list[str] = []
    done = threading.Event()

    def begin() -> None:
        loop.call_later(20, lambda: ran.append("late"))
        loop.call_later(30, done.set)
        loop.call_later(10, lambda: ran.append("cancelled")).cancel()
        loop.call_later(10, lambda: ran.append("early"))
        loop.call_soon(lambda: ran.append("soon"))
        assert loop.is_current

    loop.call_soon(begin)
    assert done.wait(LONG_S)
    assert ran == ["soon", "early", "late"] and not loop.is_current


def test_what_was_called_before_the_start_is_done_after_it():
    loop = ClientLoop("test")
    called = threading.Event()
    loop.call_soon(called.set)
    loop.start()
    assert called.wait(LONG_S)
    loop.stop()
    loop.join(LONG_MS)


def test_a_loop_that_was_never_started_can_be_stopped():
    loop = ClientLoop("test")
    loop.stop()
    loop.join(LONG_MS)


@pytest.mark.parametrize("broken", [False, True])
def test_the_end_is_told_with_its_cause(monkeypatch, broken):
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    told: list[bool] = []
    loop = ClientLoop("test", on_end=told.append)
    loop.start()
    if broken:
        loop.call_soon(lambda: 1 // 0)
    else:
        loop.stop()
    loop.join(LONG_MS)
    assert told == [broken] and loop.has_ended and loop.is_stopping
    with pytest.raises(LoopEndedError):
        loop.call(lambda: None)


def test_an_error_of_a_call_is_its_callers_and_the_loop_goes_on(loop):
    def fail() -> None:
        raise HeadraceError("no")

    with pytest.raises(HeadraceError, match="no"):
        loop.call(fail)
    loop.call(lambda: None)


def test_who_asks_gets_the_first_answer_or_the_end_of_the_loop_or_of_its_time(loop):
    def twice(answer) -> None:
        answer(1)
        answer(2)

    assert loop.ask(twice) == 1
    late: list = []
    with pytest.raises(TimeoutError):
        loop.ask(late.append, 1)
    loop.call(lambda: late[0]("nobody waits any more"))
    with pytest.raises(LoopEndedError):
        loop.ask(lambda _answer: loop.stop())


def test_work_has_a_turn_after_each_wake_and_whenever_it_is_due():
    class Work:
        turns = 0
        due = 1

        def turn(self) -> None:
            self.turns += 1
            if self.turns == 3:
                third.set()

        def due_in_ms(self, _now_ms: int) -> int | None:
            return self.due if self.turns < 3 else None

        def sockets(self) -> list:
            return []

    third, work = threading.Event(), Work()
    loop = ClientLoop("test", work=work)
    loop.start()
    assert third.wait(LONG_S)
    with loop.lock:
        loop.wake()
    loop.call(lambda: None)
    assert work.turns >= 3
    loop.stop()
    loop.join(LONG_MS)
