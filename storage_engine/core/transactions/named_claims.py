"""Which write may say that it has written a number, where several writes of one micro-batch, or its
repetition, use the same one. Each number may be written, or repeated, once in each call of
`foreachBatch`.

    asked by                                       answer
    the same write, or one that follows a write    ALREADY_COMMITTED
      that was given up
    another call of `foreachBatch` for the same    ALREADY_COMMITTED, and from its commit on the
      micro-batch: the driver was restarted        number is claimed by that write
    a second write of the same call                BATCH_ID_TAKEN: its rows would be dropped
    another micro-batch, another query             BATCH_ID_TAKEN

A micro-batch that is repeated has no new number until its former ones are repeated, too: code whose
names have changed would write rows again under the new names. A call that was killed between two
writes begins with those that it had done. Checked as a model.

The committed numbers of named batch writes, by sink and part. A committed number is never
forgotten, and consecutive numbers take no further room.

    newest numbers   each has a ledger, with run and rows          some 2 * LEDGERS_KEPT
    all others       intervals, each with the query it belongs to  up to MOST_PIECES

A number's ledger ends in an interval: both records are appended together. Which query has committed
a number is kept for ever, so neighbours of different queries are not merged; its run and its rows
are kept as long as its ledger.

The offsets up to which the partitions of a source have been copied to a sink, by all its queries
together. Origins only advance, and each move has a number, the sink's clock.

By the clock a task attempt recognises origins that have moved since it joined. Clock and origins
are stored in the ledgers, so that they outlive a coordinator; here they are collected by sink, so
that a query costs the same however many batches were committed before.

The runs of a streaming query. Only the newest known run may write, and an unknown run is newer
than all others, so that a restart is never refused.

Two runs of one query live at once where a checkpoint was copied, or an old driver does not know
that it was replaced. The only order of runs is that in which their requests come. A run that
RUNS_KEPT others have replaced since counts as new: it replaces the newest, whose query ends and can
be started again; the numbers of micro-batches still decide which rows count.

One task attempt of the exactly-once sink, as its coordinator keeps it.

Source: R-SPARK2, R-SPARK3.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import (
    CommittedMicroBatch,
    RunRequest,
    TransactionLog,
)
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberRecord,
    NumberClaim,
    NumberInterval,
    NumbersKey,
    NumbersRecord,
    Origin,
)


def answer_to(committed: CommittedMicroBatch, event: RunRequest) -> ErrorCode:
    """Return ALREADY_COMMITTED where the write is a repetition of the one that was committed."""
    is_repeated = committed.owner == event.owner and not _are_two(committed.claim, event.claim)
    return ErrorCode.ALREADY_COMMITTED if is_repeated else ErrorCode.BATCH_ID_TAKEN


def _are_two(before: NumberClaim | None, claim: NumberClaim | None) -> bool:
    if before is None or claim is None:
        return False
    if before.micro_batch != claim.micro_batch:
        return True
    return before.attempt == claim.attempt and before.write not in (claim.write, None)


def claimed(record: LedgerRecord, event: RunRequest, *, by_write: bool) -> LedgerRecord:
    """Return the record of a committed number as the repetition claims it: for its call of
    `foreachBatch`, and `by_write` for itself alone."""
    before, claim = record.claim, event.claim
    if claim is None or record.last != event.batch:
        return record
    if not by_write:
        if before is not None and before.attempt == claim.attempt:
            return record
        claim = replace(claim, write=None)
    return record if before == claim else replace(record, claim=claim)


def given_up(record: LedgerRecord, write: UUID | None) -> LedgerRecord:
    """Return the record without that write: what it was told is not known, so the next one of the
    call is its repetition."""
    claim = record.claim
    if claim is None or write is None or claim.write != write:
        return record
    return replace(record, claim=replace(claim, write=None))


class _MicroBatch:
    """The numbers of one micro-batch of one query, by the call that has claimed each."""

    __slots__ = ("attempts", "many", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.attempts: dict[LedgerKey, UUID] = {}
        self.many: Counter[UUID] = Counter()
        """How many numbers each call has claimed: a commit looks at one of these."""


class NamedClaims:
    """The claims on the numbers of the newest micro-batch of each query, by sink."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], _MicroBatch] = {}

    def note(self, key: LedgerKey, record: LedgerRecord) -> None:
        claim = record.claim
        if claim is None:
            return
        query = key.sink, record.owner
        newest = self._newest.get(query)
        if newest is None or newest.number < claim.micro_batch:
            newest = self._newest[query] = _MicroBatch(claim.micro_batch)
        if newest.number == claim.micro_batch:
            self._drop(newest, key)
            newest.attempts[key] = claim.attempt
            newest.many[claim.attempt] += 1

    def forget(self, key: LedgerKey, record: LedgerRecord) -> None:
        """Forget the number, as its ledger goes."""
        query = key.sink, record.owner
        newest = self._newest.get(query)
        if newest is not None:
            self._drop(newest, key)
            if not newest.attempts:
                del self._newest[query]

    def are_repeated(self, event: RunRequest) -> bool:
        """Return True when this call of `foreachBatch` has repeated all numbers that earlier calls
        for its micro-batch have written."""
        claim = event.claim
        newest = self._newest.get((event.sink, event.owner))
        if claim is None or newest is None or newest.number != claim.micro_batch:
            return True
        return newest.many[claim.attempt] == len(newest.attempts)

    def __len__(self) -> int:
        return sum(len(each.attempts) for each in self._newest.values())

    def _drop(self, newest: _MicroBatch, key: LedgerKey) -> None:
        attempt = newest.attempts.pop(key, None)
        if attempt is not None:
            newest.many[attempt] -= 1
            if not newest.many[attempt]:
                del newest.many[attempt]


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


MOST_ORIGIN_BYTES = 15 << 20
"""The most bytes of origins in a record, unless the log's max.message.bytes is lower."""
_TOPIC_BYTES = 8
"""The bytes of an origin besides the name of its topic: two counts."""
_PARTITION_BYTES = 20

_Move = tuple[int, str]
"""(clock, query)."""


class SinkOrigins:
    __slots__ = ("_moves", "clock", "offsets", "seen_at")

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        """By source partition the highest offset of any query, inclusive."""
        self.clock = 0
        """The number of commits that have moved the origins."""
        self.seen_at = 0
        """The number of the newest record that has moved them."""
        self._moves: dict[TopicPartition, tuple[_Move, ...]] = {}
        """By source partition the last move and the last one of another query; the query that asks
        has made at most one of them."""

    def note(self, query: str, origins: Mapping[TopicPartition, Origin], number: int) -> None:
        self.seen_at = max(self.seen_at, number)
        for source, origin in origins.items():
            self.offsets[source] = max(origin.offset, self.offsets.get(source, origin.offset))
            self.clock = max(self.clock, origin.clock)
            last = {name: clock for clock, name in self._moves.get(source, ())}
            last[query] = max(origin.clock, last.get(query, 0))
            moves = sorted(((clock, name) for name, clock in last.items()), reverse=True)
            self._moves[source] = tuple(moves[:2])

    def moved_since(self, clock: int, query: str, sources: Iterable[TopicPartition]) -> bool:
        """Return True when another query has moved one of the sources after that clock."""
        return any(
            moved > clock and name != query
            for source in sources
            for moved, name in self._moves.get(source, ())
        )


def advanced(
    present: Mapping[TopicPartition, Origin], offsets: Mapping[TopicPartition, int], clock: int
) -> Mapping[TopicPartition, Origin]:
    """Return a query's origins after a commit up to these offsets, at that clock."""
    origins = dict(present)
    for source, offset in offsets.items():
        known = origins.get(source)
        if known is None or offset > known.offset:
            origins[source] = Origin(offset, clock)
    return origins


def folded(into: LedgerRecord, ended: Iterable[LedgerRecord]) -> Mapping[TopicPartition, Origin]:
    """Return the origins of a record that takes over those of queries that have ended."""
    origins = dict(into.origins)
    for record in ended:
        for source, origin in record.origins.items():
            known = origins.get(source, origin)
            origins[source] = Origin(
                max(known.offset, origin.offset), max(known.clock, origin.clock)
            )
    return origins


def origin_bytes(origins: Iterable[TopicPartition]) -> int:
    """Return the most bytes that the sources take in a record."""
    topics = Counter(source.topic for source in origins)
    return sum(
        _TOPIC_BYTES + len(topic.encode()) + _PARTITION_BYTES * count
        for topic, count in topics.items()
    )


RUNS_KEPT = 16
"""The number of runs that a query's record keeps, of 16 bytes each."""


def is_replaced(record: LedgerRecord, run: UUID) -> bool:
    """Return True when a newer run was seen."""
    return run in record.runs[:-1]


def with_run(record: LedgerRecord, run: UUID) -> LedgerRecord:
    """Return the record with that run as the newest; the same object when it is already."""
    if record.runs[-1:] == (run,):
        return record
    return replace(record, runs=(*record.runs, run)[-RUNS_KEPT:])


Batch = tuple[LedgerKey, int]


class SinkMember:
    """One task attempt, with all records that were appended for it."""

    __slots__ = ("record", "seen_at", "unmarked")

    def __init__(self, record: MemberRecord, seen_at: int) -> None:
        self.record = record
        self.seen_at = seen_at
        """The number of its newest record."""
        self.unmarked: set[TopicPartition] | None = None
        """The partitions that have not acknowledged the marker; None while the transaction is
        open."""

    @property
    def batch(self) -> Batch:
        return self.record.ledger, self.record.batch
