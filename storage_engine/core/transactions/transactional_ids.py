"""Transactions of Kafka's producers: one at a time for each transactional id. A transaction has
ended when every partition has its marker, and only then may the next one begin.

    request        state      outcome
    any            in flight  CONCURRENT_TRANSACTIONS: a failover may still undo what we know
    AddPartitions  in flight  if open: answered when both are replicated, since leaders ask at once
    InitProducer   open       abort it under the next epoch, which fences it; "ask again"
                   ending     CONCURRENT_TRANSACTIONS
                   else       the next epoch, or a new producer id when the epochs are used up
    AddPartitions  ending     CONCURRENT_TRANSACTIONS
                   else       ONGOING with the partitions
    EndTransaction open       PREPARE_*; answered when replicated, and so are the markers sent
                   ending     CONCURRENT_TRANSACTIONS when it is a repeat, else INVALID_TXN_STATE
                   complete   NONE when it is a repeat, else INVALID_TXN_STATE

With an epoch bump (KIP-890) a transaction ends under the next epoch, its markers carry it, and the
answer names it: whatever comes late under the old epoch is refused everywhere, and a repeat is told
from a new request by its epoch. A transaction that a leader has enlisted a partition in always ends
so, however its client ends it: a batch that comes late would enlist in the next one. The last epoch
is kept for fencing: a producer id that has used up the others is replaced when its transaction is
complete. Source: KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from storage_engine.core.coordinator_log import Moment, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.producer_epochs import (
    BUMPING_CLIENT,
    LAST_CLIENT_EPOCH,
    bumped,
    completed,
    is_early,
    is_repeat,
    may_go_on,
)
from storage_engine.core.transactions.transaction_events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    SendMarkers,
    TransactionAnswer,
    TransactionLog,
    VerifyPartitions,
)
from storage_engine.core.transactions.transaction_state import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)


class _Entry:
    """One transactional id, with all records that were appended for it."""

    __slots__ = ("open_ms", "previous_epoch", "record", "seen_at", "unmarked")

    def __init__(self, record: TransactionRecord, seen_at: int) -> None:
        self.record = record
        self.seen_at = seen_at
        """The number of its newest record."""
        self.previous_epoch = NO_PRODUCER_EPOCH
        """The producer's epoch before its last InitProducerId: it identifies a repeated request
        (KIP-360)."""
        self.unmarked: set[TopicPartition] = set()
        """The partitions that have not acknowledged the marker, while the transaction is ending."""
        self.open_ms: int | None = None
        """The monotonic time since when the transaction is open; None until the next tick."""


class TransactionalIds:
    """All transactional ids of one partition of the state log."""

    def __init__(self, log: TransactionLog, *, timeout_max_ms: int, expiration_ms: int) -> None:
        self._log = log
        self._timeout_max_ms = timeout_max_ms
        self._expiration_ms = expiration_ms
        self._entries: dict[str, _Entry] = {}
        self._ending: dict[int, str] = {}
        """The transactional id by producer id, for markers under way."""
        self._open: dict[int, str] = {}
        """The transactional id by producer id, for open transactions."""
        self._checked_ms = 0
        """The monotonic time at which the last whole round of checks for transactions that have
        timed out began."""

    def get(self, transactional_id: str) -> TransactionRecord | None:
        """Return the newest record of the id, replicated or not."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.record

    def __iter__(self) -> Iterator[tuple[str, TransactionRecord]]:
        return ((name, entry.record) for name, entry in self._entries.items())

    def partitions_of(self, producer_id: int) -> frozenset[TopicPartition]:
        """Return the partitions of the producer's transaction while it has not ended everywhere."""
        name = self._open.get(producer_id) or self._ending.get(producer_id)
        return frozenset() if name is None else self._entries[name].record.partitions

    def begin(self, at: Moment) -> None:
        """Begin; called once, before anything else."""
        self._checked_ms = at.now_ms

    def restore(self, transactional_id: str, record: TransactionRecord, at: Moment) -> None:
        """Restore an id from the log, and continue what was under way.

        Only the wall clock tells since when a transaction is open; from now on the monotonic clock
        counts.
        """
        entry = self._entries[transactional_id] = _Entry(record, 0)
        entry.open_ms = at.now_ms - max(0, at.wall_ms - record.start_ms)
        self._note_open(transactional_id, record)
        if record.state.is_ending:
            self._end(transactional_id, entry)

    def init_producer(self, event: InitProducer) -> None:
        log = self._log
        if (event.producer_id == NO_PRODUCER_ID) != (event.producer_epoch == NO_PRODUCER_EPOCH):
            log.refuse(event.request, ErrorCode.INVALID_REQUEST)
            return
        if not 0 < event.timeout_ms <= self._timeout_max_ms:
            log.refuse(event.request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            self._init_first(event)
        elif log.in_flight(entry.seen_at):
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif not may_go_on(event, entry.record):
            log.refuse(event.request, ErrorCode.PRODUCER_FENCED)
        elif entry.record.state.is_ending:
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif entry.record.state is TransactionState.ONGOING:
            if event.producer_epoch not in (NO_PRODUCER_EPOCH, entry.record.producer_epoch):
                log.refuse(event.request, ErrorCode.PRODUCER_FENCED)
            else:
                self._fence(event.transactional_id, entry, event.now_ms)
                log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._init_next(event, entry)

    def add_partitions(self, event: AddPartitions) -> None:
        log = self._log
        entry = self._used_by(event)
        if isinstance(entry, ErrorCode):
            log.refuse(event.request, entry)
            return
        record = entry.record
        if record.state.is_ending:
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        open_already = record.state is TransactionState.ONGOING
        if event.partitions <= (record.partitions if open_already else frozenset()):
            log.answer(TransactionAnswer(request=event.request), after=entry.seen_at)
            return
        new = replace(
            record, partitions=record.partitions | event.partitions, last_update_ms=event.now_ms
        )
        if event.by_leader:
            new = replace(new, client_version=BUMPING_CLIENT)
        elif not open_already:
            new = replace(new, client_version=0)
        if not open_already:
            # A producer that goes on has received the answers to all its earlier requests.
            entry.previous_epoch = NO_PRODUCER_EPOCH
            entry.open_ms = None
            new = replace(
                new,
                state=TransactionState.ONGOING,
                start_ms=event.now_ms,
                previous_producer_id=NO_PRODUCER_ID,
            )
        self._write(event.transactional_id, entry, new)
        log.answer(TransactionAnswer(request=event.request), after=entry.seen_at)

    def verify(self, event: VerifyPartitions) -> None:
        entry = self._used_by(event)
        if isinstance(entry, ErrorCode):
            self._log.refuse(event.request, entry)
            return
        record = entry.record
        if record.state is TransactionState.ONGOING and event.partitions <= record.partitions:
            self._log.emit(TransactionAnswer(request=event.request))
        else:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)

    def end(self, event: EndTransaction) -> None:
        log = self._log
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            log.refuse(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif log.in_flight(entry.seen_at):
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif event.bumps_epoch and is_repeat(event, entry.record):
            self._repeat_end(event, entry.record)
        elif is_early((event.producer_id, event.producer_epoch), entry.record):
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif event.producer_id != entry.record.producer_id:
            log.refuse(event.request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif event.producer_epoch != entry.record.producer_epoch:
            log.refuse(event.request, ErrorCode.PRODUCER_FENCED)
        elif entry.record.state is TransactionState.ONGOING:
            self._prepare(event, entry)
        elif event.bumps_epoch:
            self._end_nothing(event, entry)
        else:
            self._repeat_end(event, entry.record)

    def note_markers(self, event: MarkersWritten) -> bool:
        """Record acknowledged markers; return True when the producer belongs to one of these
        ids."""
        transactional_id = self._ending.get(event.producer_id)
        if transactional_id is None:
            return False
        entry = self._entries[transactional_id]
        if event.producer_epoch == entry.record.producer_epoch:
            entry.unmarked -= event.partitions
            if not entry.unmarked:
                self._complete(transactional_id, entry, event.now_ms)
        return True

    def tick(self, now: Callable[[], Moment]) -> Iterator[None]:
        """Look for ids that have expired and transactions that have been open for too long. Between
        the steps others have their turn."""
        began_ms = now().now_ms
        for number, piece in enumerate(pieces(self._entries)):
            if number:
                yield
            for transactional_id in piece:
                entry = self._entries.get(transactional_id)
                if entry is not None:
                    self._check_time(transactional_id, entry, now())
        self._checked_ms = began_ms

    def _check_time(self, transactional_id: str, entry: _Entry, at: Moment) -> None:
        record = entry.record
        if self._log.in_flight(entry.seen_at) or record.state.is_ending:
            return
        if record.state is TransactionState.ONGOING:
            if self._open_for_ms(entry, at) >= record.timeout_ms:
                self._fence(transactional_id, entry, at.wall_ms)
        elif at.wall_ms - record.last_update_ms >= self._expiration_ms:
            del self._entries[transactional_id]
            self._log.append((TransactionalIdKey(transactional_id), None))

    def _open_for_ms(self, entry: _Entry, at: Moment) -> int:
        """Return how long the transaction has been open. The wall clock is trusted only as far as
        it can be right: a new transaction has begun since the last check."""
        if entry.open_ms is None:
            by_wall_ms = max(0, at.wall_ms - entry.record.start_ms)
            entry.open_ms = at.now_ms - min(by_wall_ms, at.now_ms - self._checked_ms)
        return at.now_ms - entry.open_ms

    def _used_by(self, event: AddPartitions | VerifyPartitions) -> _Entry | ErrorCode:
        """Return the entry of the id that the producer goes on with, or why it may not."""
        entry = self._entries.get(event.transactional_id)
        if entry is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        producer = event.producer_id, event.producer_epoch
        record = entry.record
        may_follow = isinstance(event, AddPartitions) and record.state is TransactionState.ONGOING
        if self._log.in_flight(entry.seen_at) and not may_follow:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if is_early(producer, record):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if event.producer_id != record.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if (
            event.producer_epoch != record.producer_epoch
            or event.producer_epoch > LAST_CLIENT_EPOCH
        ):
            return ErrorCode.PRODUCER_FENCED
        return entry

    def _init_first(self, event: InitProducer) -> None:
        record = TransactionRecord(
            producer_id=event.fresh_producer_id,
            producer_epoch=0,
            timeout_ms=event.timeout_ms,
            state=TransactionState.EMPTY,
            last_update_ms=event.now_ms,
            client_version=event.client_version,
        )
        entry = self._entries[event.transactional_id] = _Entry(record, 0)
        self._write(event.transactional_id, entry, record)
        self._answer_producer(event.request, entry)

    def _init_next(self, event: InitProducer, entry: _Entry) -> None:
        """Give the next epoch, or after the last one the next producer id."""
        old = entry.record
        new = replace(
            old,
            timeout_ms=event.timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            last_update_ms=event.now_ms,
            client_version=event.client_version,
        )
        asked = event.producer_epoch
        if event.producer_id == old.previous_producer_id and asked != NO_PRODUCER_EPOCH:
            # The producer was given its next producer id, and did not get the answer.
            self._answer_producer(event.request, entry)
            return
        if asked not in (NO_PRODUCER_EPOCH, old.producer_epoch):
            if asked == entry.previous_epoch:
                self._answer_producer(event.request, entry)
            else:
                self._log.refuse(event.request, ErrorCode.PRODUCER_FENCED)
            return
        entry.previous_epoch = asked
        if old.producer_epoch >= LAST_CLIENT_EPOCH:
            new = replace(
                new,
                producer_id=event.fresh_producer_id,
                producer_epoch=0,
                previous_producer_id=(
                    NO_PRODUCER_ID if asked == NO_PRODUCER_EPOCH else old.producer_id
                ),
            )
        else:
            new = replace(
                new,
                producer_epoch=old.producer_epoch + 1,
                previous_producer_id=NO_PRODUCER_ID,
            )
        self._write(event.transactional_id, entry, new)
        self._answer_producer(event.request, entry)

    def _fence(self, transactional_id: str, entry: _Entry, now_ms: int) -> None:
        """Abort the transaction under an epoch that no producer has been given."""
        old = entry.record
        assert old.producer_epoch < MAX_PRODUCER_EPOCH, "no producer is given the last epoch"
        entry.previous_epoch = NO_PRODUCER_EPOCH
        self._write(
            transactional_id,
            entry,
            replace(
                old,
                state=TransactionState.PREPARE_ABORT,
                producer_epoch=old.producer_epoch + 1,
                last_update_ms=now_ms,
            ),
        )
        self._end(transactional_id, entry)

    def _prepare(self, event: EndTransaction, entry: _Entry) -> None:
        old = entry.record
        new = replace(
            old,
            state=(
                TransactionState.PREPARE_COMMIT if event.commits else TransactionState.PREPARE_ABORT
            ),
            last_update_ms=event.now_ms,
        )
        if event.bumps_epoch or old.client_version == BUMPING_CLIENT:
            new = bumped(new, event.fresh_producer_id)
            entry.previous_epoch = NO_PRODUCER_EPOCH
        self._write(event.transactional_id, entry, new)
        self._answer_end(event, new, after=entry.seen_at)
        self._end(event.transactional_id, entry)

    def _end_nothing(self, event: EndTransaction, entry: _Entry) -> None:
        """Answer a bumping client that aborts a transaction of which this coordinator has no
        partition: it may have written nothing, or its writes failed. The new epoch fences these."""
        old = entry.record
        if old.state.is_ending:
            self._log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        if event.commits:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)
            return
        new = completed(
            bumped(replace(old, state=TransactionState.PREPARE_ABORT), event.fresh_producer_id),
            event.now_ms,
        )
        entry.previous_epoch = NO_PRODUCER_EPOCH
        self._write(event.transactional_id, entry, new)
        self._answer_end(event, new, after=entry.seen_at)

    def _repeat_end(self, event: EndTransaction, record: TransactionRecord) -> None:
        """Answer a request that is a repeat, or that contradicts the one before it."""
        same = record.state.commits == event.commits
        if record.state.is_ending and same:
            self._log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
        elif record.state.is_complete and same:
            self._answer_end(event, record, after=0)
        else:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)

    def _answer_end(self, event: EndTransaction, record: TransactionRecord, *, after: int) -> None:
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if event.bumps_epoch:
            producer_id, epoch = record.producer_id, record.producer_epoch
            if record.next_producer_id != NO_PRODUCER_ID:
                producer_id, epoch = record.next_producer_id, 0
        answer = TransactionAnswer(
            request=event.request, producer_id=producer_id, producer_epoch=epoch
        )
        self._log.answer(answer, after=after)

    def _answer_producer(self, request: int, entry: _Entry) -> None:
        record = entry.record
        answer = TransactionAnswer(
            request=request, producer_id=record.producer_id, producer_epoch=record.producer_epoch
        )
        self._log.answer(answer, after=entry.seen_at)

    def _note_open(self, transactional_id: str, record: TransactionRecord) -> None:
        if record.state is TransactionState.ONGOING:
            self._open[record.producer_id] = transactional_id
        else:
            self._open.pop(record.producer_id, None)

    def _write(self, transactional_id: str, entry: _Entry, record: TransactionRecord) -> None:
        entry.record = record
        self._note_open(transactional_id, record)
        entry.seen_at = self._log.append((TransactionalIdKey(transactional_id), record))

    def _end(self, transactional_id: str, entry: _Entry) -> None:
        """Have the markers written, as soon as the decision can't be lost."""
        record = entry.record
        entry.unmarked = set(record.partitions)
        self._ending[record.producer_id] = transactional_id
        markers = SendMarkers(
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            commits=record.state.commits,
            partitions=record.partitions,
            has_own_epoch=record.client_version == BUMPING_CLIENT,
        )

        def send() -> None:
            if record.partitions:
                self._log.emit(markers)
            else:
                self._complete(transactional_id, entry, record.last_update_ms)

        self._log.after(entry.seen_at, send)

    def _complete(self, transactional_id: str, entry: _Entry, now_ms: int) -> None:
        del self._ending[entry.record.producer_id]
        self._write(transactional_id, entry, completed(entry.record, now_ms))
