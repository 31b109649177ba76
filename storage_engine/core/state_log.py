"""The log of a transaction coordinator, seen from its state machines: records go out in order, and
what depends on one waits until it is replicated. Its one rule: no answer and no marker leaves
before everything that it was concluded from.

    number   0: all that was restored from the log; then 1, 2, ... for each record appended

Source: R-SPARK2 (an answer that leaves earlier is a batch that Spark logs and a failover loses).
"""

from collections.abc import Callable

from storage_engine.core.errors import ErrorCode
from storage_engine.core.transaction_events import Answer, AppendRecord, Effect
from storage_engine.core.transaction_state import StateKey, StateRecord

NOTHING_REPLICATED = -1


class StateLog:
    """Invariant: `replicated` <= `appended`; who waits, waits for a number above `replicated`."""

    __slots__ = ("_effects", "_waiting", "appended", "replicated")

    def __init__(self) -> None:
        self.appended = 0
        self.replicated = NOTHING_REPLICATED
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._effects: list[Effect] = []

    def append(self, key: StateKey, record: StateRecord | None) -> int:
        """The number of the record."""
        self.appended += 1
        self._effects.append(AppendRecord(number=self.appended, key=key, record=record))
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

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def answer(self, answer: Answer, *, after: int) -> None:
        self.after(after, lambda: self.emit(answer))

    def refuse(self, request: int, error: ErrorCode) -> None:
        """Answer at once with an error that promises nothing."""
        self.emit(Answer(request=request, error=error))

    def note_replicated(self, number: int) -> None:
        assert self.replicated <= number <= self.appended, "replication goes forward"
        self.replicated = number
        for due in sorted(each for each in self._waiting if each <= number):
            for action in self._waiting.pop(due):
                action()

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
