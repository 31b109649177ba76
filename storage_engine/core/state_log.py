"""The log of a coordinator as its state machines see it: records are appended in order, and
whatever depends on a record waits until that is replicated. No answer and no marker leaves before
all records that it follows from are replicated.

    number   0: all that was restored from the log; then 1, 2, ... for each record appended

Source: R-SPARK2 (an answer that leaves earlier is a batch that Spark logs and a failover loses).
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from storage_engine.core.coordinator_log import AppendRecord, CountAppended, EntryT
from storage_engine.core.errors import ErrorCode

NOTHING_REPLICATED = -1

EffectT = TypeVar("EffectT")
"""The answers of one kind of coordinator, and its other effects."""


class StateLog(Generic[EntryT, EffectT]):
    """Invariant: `replicated` <= `appended`; everything that waits, waits for a number above
    `replicated`."""

    __slots__ = ("_effects", "_refusal", "_waiting", "appended", "replicated")

    def __init__(self, refusal: Callable[[int, ErrorCode], EffectT]) -> None:
        """`refusal` makes the answer to a request (by number) that has failed."""
        self.appended = 0
        self.replicated = NOTHING_REPLICATED
        self._refusal = refusal
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._effects: list[AppendRecord[EntryT] | CountAppended | EffectT] = []

    def append(self, entry: EntryT, *, producer: tuple[int, int] | None = None) -> int:
        """Append a record and return its number."""
        self.appended += 1
        self._effects.append(AppendRecord(number=self.appended, entry=entry, producer=producer))
        return self.appended

    def count_appended(self) -> int:
        """Return a number for the records that somebody else has just appended."""
        self.appended += 1
        self._effects.append(CountAppended(number=self.appended))
        return self.appended

    def in_flight(self, number: int) -> bool:
        """Return True while a failover may lose that record."""
        return number > self.replicated

    def after(self, number: int, action: Callable[[], None]) -> None:
        """Call `action` as soon as the record of that number is replicated."""
        if self.in_flight(number):
            self._waiting.setdefault(number, []).append(action)
        else:
            action()

    def emit(self, effect: EffectT) -> None:
        self._effects.append(effect)

    def answer(self, answer: EffectT, *, after: int) -> None:
        """Send the answer as soon as the record of that number is replicated."""
        self.after(after, lambda: self.emit(answer))

    def refuse(self, request: int, error: ErrorCode) -> None:
        """Send an error at once, since it promises nothing."""
        self.emit(self._refusal(request, error))

    def note_replicated(self, number: int) -> None:
        assert self.replicated <= number <= self.appended, "replication goes forward"
        self.replicated = number
        for due in sorted(each for each in self._waiting if each <= number):
            for action in self._waiting.pop(due):
                action()

    def take_effects(self) -> list[AppendRecord[EntryT] | CountAppended | EffectT]:
        effects, self._effects = self._effects, []
        return effects
