"""The ledgers of all sinks of one coordinator. A ledger is the coordinator's record of one query
that writes to a sink: its last committed batch, its newest runs, and the offsets up to which its
sources are copied (origins). A query costs the same, however many batches were committed before.

    ledger of              becomes
    streaming query        never; one that has only tried, after a time
    named batch write      its number in an interval (`named_claims`)
    batch write without a  nothing, after a time
      name
    NO_QUERY               never: it keeps the origins of batch writes, once for each sink

Source: R-SPARK2, R-SPARK3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice
from uuid import UUID

from storage_engine.core.coordinator_log import Moment, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.named_claims import (
    CommittedNumbers,
    NamedClaims,
    SinkOrigins,
    claimed,
    folded,
    given_up,
    is_replaced,
    origin_bytes,
    with_run,
)
from storage_engine.core.transactions.transaction_events import (
    CommittedMicroBatch,
    RunRequest,
    TransactionLog,
)
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    NO_QUERY,
    NO_TIME,
    LedgerKey,
    LedgerRecord,
    NumbersKey,
    NumbersRecord,
    StateKey,
    is_once,
    named_write,
    part_and_number,
)

MOST_FORGOTTEN = 200
"""The most ledgers that are forgotten in one tick."""


class SinkLedger:
    """One query's commits to one sink, with all records that were appended for it."""

    __slots__ = ("idle_since_ms", "members", "origins_stay", "record", "seen_at", "unmarked")

    def __init__(self, record: LedgerRecord, seen_at: int) -> None:
        self.record = record
        self.seen_at = seen_at
        """The number of its newest record."""
        self.unmarked: dict[int, set[TopicPartition]] = {}
        """By producer id of the ends in `record`, the partitions that have not acknowledged the
        marker."""
        self.members: dict[int, set[int]] = {}
        """The producer ids of the open members, by batch; no batch is without one."""
        self.idle_since_ms: int | None = None
        """The monotonic time since when this coordinator has seen no request, for a ledger without
        a commit."""
        self.origins_stay = False
        """True when there was no room for its origins in the record of NO_QUERY."""


class SinkLedgers:
    def __init__(self, log: TransactionLog, most_origin_bytes: int) -> None:
        self._log = log
        self._most_origin_bytes = most_origin_bytes
        self._ledgers: dict[LedgerKey, SinkLedger] = {}
        self._origins: dict[str, SinkOrigins] = {}
        """The origins of each sink that has any."""
        self.numbers = CommittedNumbers(log)
        self.claims = NamedClaims()
        self._unreadable: Set[StateKey] = frozenset()
        """The keys of records that can't be decoded; such records are never replaced."""

    def __getitem__(self, key: LedgerKey) -> SinkLedger:
        return self._ledgers[key]

    def __iter__(self) -> Iterator[tuple[LedgerKey, SinkLedger]]:
        return iter(self._ledgers.items())

    def get(self, key: LedgerKey) -> SinkLedger | None:
        return self._ledgers.get(key)

    def of(self, key: LedgerKey) -> SinkLedger:
        """Return the ledger, or an empty one that is not in the table: the caller must `keep` it
        as soon as it has content."""
        ledger = self._ledgers.get(key)
        return SinkLedger(LedgerRecord(), self._log.replicated) if ledger is None else ledger

    def keep(self, key: LedgerKey, ledger: SinkLedger) -> None:
        self._ledgers[key] = ledger

    def drop_empty(self, key: LedgerKey) -> None:
        """Drop the ledger of a query that has committed nothing and has no open member."""
        ledger = self._ledgers.get(key)
        if ledger is not None and not ledger.members and ledger.record == LedgerRecord():
            del self._ledgers[key]

    def restore(
        self,
        ledgers: Iterable[tuple[LedgerKey, LedgerRecord]],
        numbers: Iterable[tuple[NumbersKey, NumbersRecord]],
        unreadable: Set[StateKey],
    ) -> Iterator[None]:
        """Restore the ledgers from the log, in pieces."""
        self._unreadable = unreadable
        for numbers_key, record in numbers:
            self.numbers.restore(numbers_key, record)
        # The log does not say in which order they were committed; numbers mostly grow.
        for piece in pieces(sorted(ledgers, key=lambda each: each[1].last)):
            for key, ledger_record in piece:
                self._ledgers[key] = SinkLedger(ledger_record, 0)
                self._note(key, self._ledgers[key])
            yield

    def write(self, key: LedgerKey, ledger: SinkLedger, record: LedgerRecord) -> None:
        assert key not in self._unreadable, "a record that nobody can read is not written over"
        self._ledgers[key] = ledger
        ledger.record = record
        ledger.seen_at = self._log.append((key, record))
        self._note(key, ledger)

    def forget(self, keys: Sequence[LedgerKey]) -> None:
        """Forget ledgers of queries without further requests; their origins are kept in one record
        of each sink, which is written before the tombstones."""
        by_sink: dict[str, list[SinkLedger]] = {}
        for key in keys:
            by_sink.setdefault(key.sink, []).append(self._ledgers[key])
        for sink, ledgers in by_sink.items():
            self._keep_origins(sink, ledgers)
        for key in keys:
            if self.can_forget(key):
                self.claims.forget(key, self._ledgers.pop(key).record)
                self._log.append((key, None))

    def forget_over(self, now: Callable[[], Moment], expiration_ms: int) -> Iterator[None]:
        """Forget ledgers that no query can ask for any more. The search for them yields between its
        pieces, so that others have their turn; to forget them is one step, and so has a bound."""
        found: list[LedgerKey] = []
        for number, piece in enumerate(pieces(self._ledgers)):
            if number:
                yield
            found += (key for key in piece if self._has_expired(key, now(), expiration_ms))
            if len(found) >= MOST_FORGOTTEN:
                break
        still = (key for key in found if self._has_expired(key, now(), expiration_ms))
        self.forget(list(islice(still, MOST_FORGOTTEN)))

    def _has_expired(self, key: LedgerKey, at: Moment, expiration_ms: int) -> bool:
        ledger = self._ledgers.get(key)
        if ledger is None:
            return False
        record = ledger.record
        if record.once_ms == NO_TIME and record.last != NO_BATCH:
            return False
        if record.ends or ledger.members or self._log.in_flight(ledger.seen_at):
            return False
        if record.once_ms != NO_TIME:
            return at.wall_ms - record.once_ms >= expiration_ms and self.can_forget(key)
        # The ledger has only the runs, if any, of a query that never committed.
        if record != LedgerRecord(runs=record.runs):
            return False
        if ledger.idle_since_ms is None:
            ledger.idle_since_ms = at.now_ms
        return at.now_ms - ledger.idle_since_ms >= expiration_ms

    def can_forget(self, key: LedgerKey) -> bool:
        """Return True when the ledger's origins have a place in the record of NO_QUERY."""
        ledger = self._ledgers[key]
        is_unreadable = LedgerKey(key.sink, NO_QUERY) in self._unreadable
        return not ledger.record.origins or not (is_unreadable or ledger.origins_stay)

    def has_room(self, key: LedgerKey, origins: Mapping[TopicPartition, int]) -> bool:
        """Return True when the origins of a commit have room in the record in which they will be
        kept."""
        ends = part_and_number(key.query) is not None or is_once(key.query)
        kept = self.of(LedgerKey(key.sink, NO_QUERY) if ends else key).record.origins
        return self._fits(kept.keys() | origins.keys())

    def _fits(self, sources: Iterable[TopicPartition]) -> bool:
        return origin_bytes(sources) <= self._most_origin_bytes

    def origins_of(self, sink: str) -> SinkOrigins:
        """Return the origins of a sink; for reading only."""
        return self._origins.get(sink) or SinkOrigins()

    def committed(self, key: LedgerKey, batch: int) -> CommittedMicroBatch | None:
        """Return who has committed the batch, by its ledger or by the intervals; None when nobody
        has."""
        record = self.of(key).record
        if batch == record.last:
            return CommittedMicroBatch(
                record.owner, record.run, record.rows, record.winner, record.claim
            )
        if batch < record.last:
            return CommittedMicroBatch(record.owner)
        named = part_and_number(key.query)
        if named is None:
            return None
        part, number = named
        owner = self.numbers.owner(NumbersKey(key.sink, part), number)
        return None if owner is None else CommittedMicroBatch(owner=owner)

    def number_refusal(self, key: LedgerKey, owner: str) -> ErrorCode:
        """Return why a number that is not known to be committed can't be written; NONE when it
        can."""
        named = part_and_number(key.query)
        if named is None:
            return ErrorCode.NONE
        part, number = named
        if not self.numbers.has_room(NumbersKey(key.sink, part), number, owner):
            return ErrorCode.TOO_MANY_BATCH_IDS
        return ErrorCode.NONE

    def note_run(self, event: RunRequest) -> tuple[bool, int]:
        """Record the run. Return whether it is replaced, and the number of the record that says so
        or that names it as the newest. A batch write within `foreachBatch` counts as a part of the
        query that runs it."""
        query = event.owner if part_and_number(event.query) is not None else event.query
        if event.run is None or query == NO_QUERY:
            return False, self._log.replicated
        key = LedgerKey(event.sink, query)
        ledger = self.of(key)
        if is_replaced(ledger.record, event.run):
            return True, ledger.seen_at
        ledger.idle_since_ms = None
        record = with_run(ledger.record, event.run)
        if record is not ledger.record:
            self.write(key, ledger, record)
        return False, ledger.seen_at

    def claim(self, event: RunRequest, *, by_write: bool) -> int:
        """Record the repetition of a committed number. Return the number of the record that says
        so."""
        return self._rewrite(
            event.ledger_key, lambda record: claimed(record, event, by_write=by_write)
        )

    def give_up(self, key: LedgerKey, write: UUID | None) -> int:
        """Record that the write is given up, if the number is its own; the same."""
        return self._rewrite(key, lambda record: given_up(record, write))

    def _rewrite(self, key: LedgerKey, change: Callable[[LedgerRecord], LedgerRecord]) -> int:
        ledger = self._ledgers.get(key)
        if ledger is None:
            return self._log.replicated
        record = change(ledger.record)
        if record is not ledger.record:
            self.write(key, ledger, record)
        return ledger.seen_at

    def settle(self, key: LedgerKey) -> None:
        """Move or expire a ledger of which every end is written, or that has no ends."""
        ledger = self._ledgers[key]
        named = part_and_number(key.query)
        record = replace(ledger.record, ends=())
        if named is not None or is_once(key.query):
            self._keep_origins(key.sink, [ledger])
            record = replace(record, origins={} if self.can_forget(key) else record.origins)
        if record != ledger.record:
            self.write(key, ledger, record)
        if named is not None:
            self._move_numbers(key.sink, named[0])

    def _keep_origins(self, sink: str, ended: Sequence[SinkLedger]) -> None:
        """Keep the origins of ended ledgers in the record of NO_QUERY. Where they have no room, the
        ledgers stay."""
        of_all = LedgerKey(sink, NO_QUERY)
        having = [ledger for ledger in ended if ledger.record.origins]
        if not having or of_all in self._unreadable:
            return
        kept = self.of(of_all)
        origins = folded(kept.record, [ledger.record for ledger in having])
        if self._fits(origins):
            self.write(of_all, kept, replace(kept.record, origins=origins))
        else:
            for ledger in having:
                ledger.origins_stay = True

    def _move_numbers(self, sink: str, part: str) -> None:
        """Move numbers into intervals when many have gathered; only ledgers whose records are
        replicated go."""

        def is_settled(number: int) -> bool:
            key = LedgerKey(sink, named_write(part, number))
            ledger = self._ledgers.get(key)
            if ledger is None or ledger.record.ends or ledger.members or not self.can_forget(key):
                return False
            return not self._log.in_flight(ledger.seen_at)

        if NumbersKey(sink, part) in self._unreadable:
            return
        moved = self.numbers.move(NumbersKey(sink, part), is_settled)
        self.forget([LedgerKey(sink, named_write(part, number)) for number in moved])

    def _note(self, key: LedgerKey, ledger: SinkLedger) -> None:
        """Update the indexes by sink and by part."""
        record = ledger.record
        self.claims.note(key, record)
        if record.origins:
            origins = self._origins.setdefault(key.sink, SinkOrigins())
            origins.note(key.query, record.origins, ledger.seen_at)
        named = part_and_number(key.query)
        if named is not None and record.last != NO_BATCH:
            part, number = named
            self.numbers.note(NumbersKey(key.sink, part), number, record.owner)
