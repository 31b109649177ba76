"""The operations of a session that kazoo has, and those that wait: each ends once, in order."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import ConnectionLoss, NoNodeError

from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.zookeeper import call_window
from storage_engine.zookeeper.call_window import CallWindow, PendingCall
from storage_engine.zookeeper.replies import UNKNOWN

OK = ZkReply(status=ZkStatus.OK)


class Result:
    """Kazoo's asynchronous result, filled in later."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self.tell: Callable[[Any], None] | None = None

    def rawlink(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell

    def end(self, exception: Exception | None = None) -> None:
        self.exception = exception
        assert self.tell is not None
        self.tell(self)


class Kazoo:
    """A window, with what kazoo has of it and what came back."""

    def __init__(self) -> None:
        self.posted: deque[Callable[[], None]] = deque()
        self.sent: list[Result] = []
        self.replies: list[tuple[int, ZkReply]] = []
        self.answered: list[int] = []
        self.now_ms = 0
        self.window = CallWindow(self.posted.append, self, self.answered.append)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def send(self) -> Result:
        self.sent.append(Result())
        return self.sent[-1]

    def submit(self, count: int) -> None:
        for number in range(count):
            self.window.submit(
                PendingCall(
                    name="get",
                    path="/a",
                    send=self.send,
                    decode=lambda _value: OK,
                    on_reply=lambda reply, number=number: self.replies.append((number, reply)),
                )
            )

    def turn(self) -> None:
        while self.posted:
            self.posted.popleft()()


def test_kazoo_has_no_more_than_a_window_and_the_rest_follows_in_order(monkeypatch):
    monkeypatch.setattr(call_window, "MAX_IN_FLIGHT", 3)
    kazoo = Kazoo()
    kazoo.submit(7)
    for number in range(7):
        assert len(kazoo.sent) == min(number + 3, 7)
        kazoo.sent[number].end()
    assert kazoo.replies == [(number, OK) for number in range(7)]


def test_a_window_is_full_with_its_backlog(monkeypatch):
    monkeypatch.setattr(call_window, "MAX_IN_FLIGHT", 1)
    monkeypatch.setattr(call_window, "MAX_BACKLOG", 2)
    kazoo = Kazoo()
    full = []
    for step in (lambda: kazoo.submit(2), lambda: kazoo.submit(1), lambda: kazoo.sent[0].end()):
        step()
        full.append(kazoo.window.is_full)
    assert full == [False, True, False]


def test_what_is_refused_ends_once_in_the_next_turn_and_kazoos_answer_counts_no_more(monkeypatch):
    monkeypatch.setattr(call_window, "MAX_IN_FLIGHT", 2)
    kazoo = Kazoo()
    kazoo.submit(4)
    kazoo.window.refuse_backlog()
    assert kazoo.replies == []
    kazoo.turn()
    assert kazoo.replies == [(2, UNKNOWN), (3, UNKNOWN)]
    kazoo.window.refuse_all()
    kazoo.turn()
    for result in kazoo.sent:
        result.end()
    assert sorted(kazoo.replies) == [(number, UNKNOWN) for number in range(4)]
    kazoo.submit(1)
    assert len(kazoo.sent) == 3, "their places are free again"


def test_only_the_servers_answers_count_from_when_their_calls_were_sent():
    kazoo = Kazoo()
    for kazoo.now_ms in (10, 20, 30):
        kazoo.submit(1)
    kazoo.now_ms = 99
    for result, error in zip(kazoo.sent, (None, ConnectionLoss(), NoNodeError()), strict=True):
        result.end(error)
    assert kazoo.answered == [10, 30]
    statuses = [reply.status for _, reply in kazoo.replies]
    assert statuses == [ZkStatus.OK, ZkStatus.UNKNOWN, ZkStatus.NO_NODE]
