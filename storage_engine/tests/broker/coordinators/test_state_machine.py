"""Answers of one coordinator to many requests."""

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from storage_engine.broker.coordinators.state_machine import ANSWERS_A_TURN, PendingAnswers
from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode

MANY = 3 * ANSWERS_A_TURN


def refusal(number: int, code: ErrorCode) -> Answer:
    return Answer(request=number, error=code)


def test_all_that_wait_are_refused_though_one_is_answered_between_the_turns():
    turns = deque[Callable[[], None]]()
    scheduler: Any = SimpleNamespace(call_soon=turns.append)
    pending = PendingAnswers(scheduler, refusal)
    heard: dict[int, list[ErrorCode]] = {}

    def note(number: int, answer: Answer) -> None:
        heard.setdefault(number, []).append(answer.error)

    for number in range(MANY):
        pending.expect(number, partial(note, number))
    pending.refuse_all(ErrorCode.NOT_COORDINATOR)
    assert len(heard) == ANSWERS_A_TURN
    answered = ANSWERS_A_TURN + 1
    pending.give(answered, Answer(request=answered))
    while turns:
        turns.popleft()()
    assert heard.pop(answered) == [ErrorCode.NONE]
    assert len(heard) == MANY - 1
    assert all(each == [ErrorCode.NOT_COORDINATOR] for each in heard.values())
