"""The log of a coordinator, seen from its state machines: records go out in order, and what depends
on one waits until it is replicated. Its one rule: no answer and no marker leaves before everything
that it was concluded from.

    number   0: all that was restored from the log; then 1, 2, ... for each record appended

Source: R-SPARK2 (an answer that leaves earlier is a batch that Spark logs and a failover loses).
"""

from collections.abc import Callable
from typing import Any

from storage_engine.core.coordinator_log import AppendRecord, CountAppended
from storage_engine.core.errors import ErrorCode

NOTHING_REPLICATED = -1

Refusal = Callable[[int, ErrorCode], Any]
"""Makes the answer to a request (by number) that failed."""


class StateLog:
    """Invariant: `replicated` <= `appended`; who waits, waits for a number above `replicated`."""

    __slots__ = ("_effects", "_refusal", "_waiting", "appended", "replicated")

    def __init__(self, refusal: Refusal) -> None:
        self.appended = 0
        self.replicated = NOTHING_REPLICATED
        self._refusal = refusal
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._effects: list[Any] = []

    def append(self, key: Any, record: Any, *, producer: tuple[int, int] | None = None) -> int:
        """The number of the record."""
        self.appended += 1
        self._effects.append(
            AppendRecord(number=self.appended, key=key, record=record, producer=producer)
        )
        return self.appended

    def count_appended(self) -> int:
        """A number for what another has appended, just now."""
        self.appended += 1
        self._effects.append(CountAppended(number=self.appended))
        return self.appended

    def in_flight(self, number: int) -> bool:
        """Whether a failover may still lose that record."""
        return number > self.replicated

    def after(self, number: int, action: Callable[[], None]) -> None:
        """Do it as soon as the record of that number is replicated."""
        if self.in_flight(number):
            self._waiting.setdefault(number, []).append(action)
        else:
            action()

    def emit(self, effect: Any) -> None:
        self._effects.append(effect)

    def answer(self, answer: Any, *, after: int) -> None:
        self.after(after, lambda: self.emit(answer))

    def refuse(self, request: int, error: ErrorCode) -> None:
        """Answer at once with an error that promises nothing."""
        self.emit(self._refusal(request, error))

    def note_replicated(self, number: int) -> None:
        assert self.replicated <= number <= self.appended, "replication goes forward"
        self.replicated = number
        for due in sorted(each for each in self._waiting if each <= number):
            for action in self._waiting.pop(due):
                action()

    def take_effects(self) -> list[Any]:
        effects, self._effects = self._effects, []
        return effects
