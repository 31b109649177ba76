"""The log of a coordinator as its state machines see it: records are appended in order, and
whatever depends on a record waits until that is replicated. No answer and no marker leaves before
all records that it follows from are replicated: a batch whose answer leaves earlier is logged by
Spark and lost by a failover.

    transactions   core/transactions/transactions.py   __transaction_state
    groups         core/groups/coordinator.py          __consumer_offsets
    number         0: all that was restored from the log; then 1, 2, ... for each record appended

The driver appends for the coordinators and reports what is replicated. A request carries a number
that the driver has given it, and gets exactly one answer with that number. Work on a whole table is
done in pieces, with the turns of others between them: clients choose its size. Source: KIP-98,
R-SPARK2.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from storage_engine.core.errors import ErrorCode

EntryT = TypeVar("EntryT")
"""A key with its new record, or with None for a tombstone: one coordinator's log is made of
these."""


class Moment(NamedTuple):
    """The time by both clocks."""

    now_ms: int
    """The monotonic time: sessions, rebalances and transactions are measured by it, since the wall
    clock may be set."""
    wall_ms: int
    """The wall time, which records carry."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """The newest record of a key, with a correct CRC, that this version can't decode: a later
    version wrote it, or a broken one. It has replaced the record before it, so that requests about
    the key are refused; all others are served."""

    reason: str


@dataclass(slots=True, kw_only=True)
class Answer:
    """Effect: the answer to a request. Answers with more fields are derived from it. Not frozen:
    each request has one, and a frozen one takes three times as long to make."""

    request: int
    error: ErrorCode = ErrorCode.NONE


AnswerT = TypeVar("AnswerT", bound=Answer)


@dataclass(frozen=True, slots=True)
class AnswerEach(Generic[AnswerT]):
    """Effect: the answers to many requests. The driver draws some in each turn, since there may be
    as many as a group has members; when it is dropped before, the other requests are refused as all
    that wait are."""

    answers: Iterator[AnswerT]


@dataclass(frozen=True, slots=True)
class TickAgain:
    """Effect: the periodic work goes on; have it done in the next turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecord(Generic[EntryT]):
    """Effect: append to the coordinator's log, in the order of the numbers.

    When it can't be appended, the driver drops the coordinator and restores another one from the
    log."""

    number: int
    entry: EntryT
    producer: tuple[int, int] | None = None
    """Id and epoch of the producer whose transaction the record is part of; the same for all
    records of a step."""
    with_last: bool = False
    """True when the record must be in one batch with the one before it in the step, so that a
    failover finds both or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAppended:
    """Effect: all that is in the log by now counts as appended under this number, whoever appended
    it."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """Event: all records up to `number` are on every in-sync replica.

    Number 0 stands for everything that the coordinator was restored from.
    """

    number: int


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

    def append(
        self,
        entry: EntryT,
        *,
        producer: tuple[int, int] | None = None,
        with_last: bool = False,
    ) -> int:
        self.appended += 1
        self._effects.append(
            AppendRecord(number=self.appended, entry=entry, producer=producer, with_last=with_last)
        )
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
        if self.replicated >= after:
            self._effects.append(answer)
        else:
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


PIECE = 500
"""Entries that are looked at in one step, some µs each."""

T = TypeVar("T")


def pieces(items: Iterable[T], size: int = PIECE) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the table is copied before, since it may change between
    the pieces. The last piece is followed by none that is empty."""
    left = iter(list(items))
    while piece := list(islice(left, size)):
        yield piece
