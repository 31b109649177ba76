"""Events and effects of all coordinators with a log of their own; their driver appends for them and
reports what is replicated. A request carries a number that the driver has given it, and gets
exactly one answer with that number.

    transactions   core/transactions/transactions.py         __transaction_state
    groups         core/groups/coordinator.py   __consumer_offsets

Source: KIP-98, R-SPARK2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Effect: the answer to a request. Answers with more fields are derived from it."""

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
