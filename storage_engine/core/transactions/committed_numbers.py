"""The committed numbers of named batch writes, by sink and part. A committed number is never
forgotten, and consecutive numbers take no further room.

    newest numbers   each has a ledger, with run and rows          some 2 * LEDGERS_KEPT
    all others       intervals, each with the query it belongs to  up to MOST_PIECES

A number's ledger ends in an interval: both records are appended together. Which query has committed
a number is kept for ever, so neighbours of different queries are not merged; its run and its rows
are kept as long as its ledger. Source: R-SPARK2.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from storage_engine.core.transactions.transaction_events import TransactionLog
from storage_engine.core.transactions.transaction_state import (
    NumberInterval,
    NumbersKey,
    NumbersRecord,
)

LEDGERS_KEPT = 100
"""The number of ledgers that each part keeps: a repeated write nearly always has one of the last
numbers. As many more may gather before they are moved together, so that a record of all intervals
is written once in a hundred commits."""

MOST_MOVED = 500
"""The most ledgers that are moved at once: more may have gathered behind one that was busy."""

MOST_PIECES = 4_096
"""The most intervals of one part, with those that its numbers with a ledger will make: their record
has 80 kB then, and is made in a few milliseconds. One number a day, with a gap every month, comes
so far in three hundred years."""


class _Part:
    """The numbers of one part of one sink."""

    __slots__ = ("newest", "record")

    def __init__(self) -> None:
        self.record = NumbersRecord()
        self.newest: dict[int, str] = {}
        """The owner of each number that has a ledger, in the order of the commits."""


class CommittedNumbers:
    """The committed numbers of all parts of one coordinator."""

    def __init__(self, log: TransactionLog) -> None:
        self._log = log
        self._parts: dict[NumbersKey, _Part] = {}

    def restore(self, key: NumbersKey, record: NumbersRecord) -> None:
        self._part(key).record = record

    def record(self, key: NumbersKey) -> NumbersRecord | None:
        """Return the record of the part in the log, without the newest numbers."""
        part = self._parts.get(key)
        return None if part is None else part.record

    def note(self, key: NumbersKey, number: int, owner: str) -> None:
        """Record a number whose ledger says that it is committed."""
        self._part(key).newest[number] = owner

    def owner(self, key: NumbersKey, number: int) -> str | None:
        """Return the owner of a committed number; None where it is not committed."""
        part = self._parts.get(key)
        return None if part is None else _owner(part, number)

    def has_room(self, key: NumbersKey, number: int, owner: str) -> bool:
        """Return True when there is room for a number that is not committed: one that continues
        others takes none."""
        part = self._parts.get(key)
        if part is None or len(part.record.intervals) + len(part.newest) < MOST_PIECES:
            return True
        if len(part.record.intervals) + _pieces(part) < MOST_PIECES:
            return True
        return owner in (_owner(part, number - 1), _owner(part, number + 1))

    def move(self, key: NumbersKey, is_settled: Callable[[int], bool]) -> list[int]:
        """Move the oldest numbers with a ledger into the intervals, when there are many, and return
        them; the caller writes the tombstones of their ledgers. `is_settled` says whether a ledger
        can't change any more."""
        part = self._parts.get(key)
        if part is None or len(part.newest) < 2 * LEDGERS_KEPT:
            return []
        many = min(len(part.newest) - LEDGERS_KEPT, MOST_MOVED)
        oldest = list(islice(part.newest, many))
        moved = [number for number in oldest if is_settled(number)]
        if moved:
            added = [
                NumberInterval(each, each, part.newest[each])
                for each in moved
                if _owner_within(part.record.intervals, each) is None
            ]
            for each in moved:
                del part.newest[each]
            part.record = NumbersRecord(intervals=merged([*part.record.intervals, *added]))
            self._log.append((key, part.record))
        return moved

    def _part(self, key: NumbersKey) -> _Part:
        return self._parts.setdefault(key, _Part())


def merged(intervals: Iterable[NumberInterval]) -> tuple[NumberInterval, ...]:
    """Return the same numbers in as few intervals as possible; the intervals are disjoint and in
    any order."""
    found: list[NumberInterval] = []
    for each in sorted(intervals, key=_first):
        if found and found[-1].last + 1 == each.first and found[-1].owner == each.owner:
            found[-1] = NumberInterval(found[-1].first, each.last, each.owner)
        else:
            found.append(each)
    return tuple(found)


def _pieces(part: _Part) -> int:
    """Return how many more intervals there would be without ledgers; negative where they close
    gaps."""
    joints = 0
    for number, owner in part.newest.items():
        joints += _owner(part, number - 1) == owner
        joints += _owner_within(part.record.intervals, number + 1) == owner
    return len(part.newest) - joints


def _owner(part: _Part, number: int) -> str | None:
    owner = part.newest.get(number)
    return _owner_within(part.record.intervals, number) if owner is None else owner


def _owner_within(intervals: Sequence[NumberInterval], number: int) -> str | None:
    at = bisect_right(intervals, number, key=_first) - 1
    return intervals[at].owner if at >= 0 and number <= intervals[at].last else None


def _first(interval: NumberInterval) -> int:
    return interval.first
