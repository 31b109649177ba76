"""Micro-batches of the exactly-once sink: each task attempt has a transaction of its own, and one
record commits those that the driver names. A batch is committed by the record of its (sink, query)
ledger, all of it and once, or not at all.

    CommitMicroBatch, in this order                            because otherwise
    0 a newer run was seen: RUN_REPLACED                  two drivers take turns with one counter
    1 batch <= last: ALREADY_COMMITTED; listed members    a commit whose answer was lost, or that
      that are open still are aborted                     another driver did, never succeeds; an
                                                          ended one aborted is a committed one lost
      by another write: BATCH_ID_TAKEN                    rows that nobody wrote are dropped
    2 drained > 0: NOT_COMMITTED                          a batch without some tasks' rows
    3 markers of the last batch missing: ask again        batches change places in a partition
      or former names not repeated (`named_claims`)       rows of renamed ones are doubled
    4 a member lost, or origins moved: MEMBER_LOST        a part of a batch; rows doubled
    5 one record: `last`, and every end                   losers and zombies stay open

A ledger carries the ends of its members until every partition has the marker. Only then come the
tombstones of the members, and last the ledger without ends: whoever takes over in between sends the
markers again, which is harmless. Producer ids are used once, and an attempt is never known by
Spark's ids, which repeat.

A batch write has a ledger of its own, with one batch: so numbers of named ones are committed in any
order, and a commit ends the members of its own number. What is left of the ledger in the end:

    streaming query             `last`, for ever
    named batch write           its number, for ever (`named_claims`)
    batch write without a name  nothing (`transactional.id.expiration.ms`): nobody can repeat it
    origins of a batch write    go to the ledger of NO_QUERY, one for each sink

Checked as a model: every rule here has a counterexample without it. Source: R-SPARK2.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace

from storage_engine.core.coordinator_log import Moment, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.named_claims import (
    MOST_ORIGIN_BYTES,
    Batch,
    SinkMember,
    advanced,
    answer_to,
)
from storage_engine.core.transactions.sink_ledgers import SinkLedger, SinkLedgers
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    CommitMicroBatch,
    CommittedMicroBatch,
    EnlistPartitions,
    JoinMicroBatch,
    MarkersWritten,
    MicroBatchHeartbeat,
    SendMarkers,
    TransactionAnswer,
    TransactionLog,
    VerifyMember,
)
from storage_engine.core.transactions.transaction_state import (
    NO_PRODUCER_ID,
    NO_TIME,
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    MemberRecord,
    NumbersKey,
    NumbersRecord,
    StateKey,
    is_once,
    names_a_sink,
)

MEMBER_EPOCH = 0
"""The epoch of every member: no producer id is used again, so there is nothing to fence."""


class MicroBatchCommits:
    """All sinks of one partition of the state log."""

    def __init__(
        self,
        log: TransactionLog,
        *,
        timeout_max_ms: int,
        expiration_ms: int,
        most_origin_bytes: int = MOST_ORIGIN_BYTES,
    ) -> None:
        self._log = log
        self._timeout_max_ms = timeout_max_ms
        self._expiration_ms = max(expiration_ms, timeout_max_ms)
        """No attempt and no driver of a batch works for longer."""
        self._members: dict[int, SinkMember] = {}
        """By producer id the members that are open, and those whose abort is not complete."""
        self._ledgers = SinkLedgers(log, most_origin_bytes)
        self._ending: dict[int, LedgerKey] = {}
        """By producer id the ledger that carries the member's end."""
        self.touched: dict[Batch, int] = {}
        """The monotonic time of the last request of a batch with open members."""
        self.committed = 0  # micro-batches, by this coordinator

    def ledger(self, key: LedgerKey) -> LedgerRecord | None:
        """Return the newest record of the ledger, replicated or not."""
        ledger = self._ledgers.get(key)
        return None if ledger is None else ledger.record

    def ledgers(self) -> Iterator[tuple[LedgerKey, LedgerRecord]]:
        return ((key, ledger.record) for key, ledger in self._ledgers)

    def numbers(self, key: NumbersKey) -> NumbersRecord | None:
        """Return the committed numbers that have no ledger any more."""
        return self._ledgers.numbers.record(key)

    def members(self) -> Iterator[tuple[int, MemberRecord]]:
        """Return the records of all members that have not ended, by producer id."""
        return ((producer_id, member.record) for producer_id, member in self._members.items())

    def partitions_of(self, producer_id: int) -> frozenset[TopicPartition]:
        """Return the partitions of a member that has not ended everywhere."""
        if producer_id in self._members:
            return self._members[producer_id].record.partitions
        key = self._ending.get(producer_id)
        ends = () if key is None else self._ledgers[key].record.ends
        return next((e.partitions for e in ends if e.producer_id == producer_id), frozenset())

    def restore(
        self,
        ledgers: Iterable[tuple[LedgerKey, LedgerRecord]],
        members: Iterable[tuple[int, MemberRecord]],
        now_ms: int,
        numbers: Iterable[tuple[NumbersKey, NumbersRecord]] = (),
        unreadable: Set[StateKey] = frozenset(),
    ) -> Iterator[None]:
        """Restore the state from the log, in pieces, and continue what was under way; a record in
        `unreadable` is never replaced.

        The timeout of an open transaction begins anew, since no record has the time of the last
        request of its batch.
        """
        yield from self._ledgers.restore(ledgers, numbers, unreadable)
        for piece in pieces(self._ledgers):
            for key, ledger in piece:
                if ledger.record.ends:
                    self._send_ends(key, ledger)
            yield
        for some in pieces(members):
            for producer_id, member_record in some:
                if producer_id not in self._ending:
                    self._restore_member(producer_id, SinkMember(member_record, 0), now_ms)
            yield

    def _restore_member(self, producer_id: int, member: SinkMember, now_ms: int) -> None:
        self._members[producer_id] = member
        if member.record.aborting:
            self._send_abort(producer_id, member)
        else:
            ledger = self._ledgers.of(member.record.ledger)
            self._ledgers.keep(member.record.ledger, ledger)
            ledger.members.setdefault(member.record.batch, set()).add(producer_id)
            self.touched[member.batch] = now_ms

    def join(self, event: JoinMicroBatch) -> None:
        log = self._log
        if not 0 < event.timeout_ms <= self._timeout_max_ms:
            log.refuse(event.request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return
        key = event.ledger_key
        replaced, seen_at = self._ledgers.note_run(event)
        ledger = self._ledgers.of(key)
        seen_at = max(seen_at, ledger.seen_at)
        if replaced:
            log.answer(
                TransactionAnswer(request=event.request, error=ErrorCode.RUN_REPLACED),
                after=seen_at,
            )
            return
        # The record of the commit may still be lost; this answer is lost with it then, since it
        # waits for that record or a later one.
        committed = self._ledgers.committed(key, event.batch)
        if committed is not None:
            self._answer_committed(event, committed, seen_at)
            return
        refusal = self._ledgers.number_refusal(key, event.owner)
        if refusal is not ErrorCode.NONE:
            log.answer(TransactionAnswer(request=event.request, error=refusal), after=seen_at)
            return
        self._ledgers.keep(key, ledger)
        origins = self._ledgers.origins_of(event.sink)
        record = MemberRecord(
            sink=event.sink,
            query=event.query,
            batch=event.batch,
            epoch=MEMBER_EPOCH,
            timeout_ms=event.timeout_ms,
            origin_clock=origins.clock,
        )
        producer_id = event.fresh_producer_id
        assert producer_id not in self._members, "a producer id is given out once"
        member = self._members[producer_id] = SinkMember(
            record, log.append((MemberKey(producer_id), record))
        )
        ledger.members.setdefault(event.batch, set()).add(producer_id)
        self.touched[member.batch] = event.now_ms
        answer = TransactionAnswer(
            request=event.request,
            producer_id=producer_id,
            producer_epoch=MEMBER_EPOCH,
            origins=dict(origins.offsets),
        )
        log.answer(answer, after=member.seen_at)

    def _answer_committed(
        self, event: JoinMicroBatch, committed: CommittedMicroBatch, seen_at: int
    ) -> None:
        """Answer with the sink's origins, so that the task can look for its rows among them."""
        origins = self._ledgers.origins_of(event.sink)
        error = answer_to(committed, event)
        if error is ErrorCode.ALREADY_COMMITTED:
            seen_at = max(seen_at, self._ledgers.claim(event, by_write=False))
        answer = TransactionAnswer(
            request=event.request,
            error=error,
            origins=dict(origins.offsets),
            committed=committed,
        )
        self._log.answer(answer, after=max(seen_at, origins.seen_at))

    def enlist(self, event: EnlistPartitions) -> None:
        member = self._open_member(event.producer_id, event.producer_epoch)
        if member is None:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)
            return
        self.touched[member.batch] = event.now_ms
        if not event.partitions <= member.record.partitions:
            member.record = replace(
                member.record, partitions=member.record.partitions | event.partitions
            )
            member.seen_at = self._log.append((MemberKey(event.producer_id), member.record))
        self._log.answer(TransactionAnswer(request=event.request), after=member.seen_at)

    def verify(self, event: VerifyMember) -> None:
        member = self._open_member(event.producer_id, event.producer_epoch)
        if member is None or not event.partitions <= member.record.partitions:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)
        else:
            self._log.answer(TransactionAnswer(request=event.request), after=member.seen_at)

    def heartbeat(self, event: MicroBatchHeartbeat) -> None:
        batch = event.ledger_key, event.batch
        if batch in self.touched:
            self.touched[batch] = event.now_ms
            self._log.emit(TransactionAnswer(request=event.request))
        else:
            self._log.refuse(event.request, ErrorCode.INVALID_TXN_STATE)

    def commit(self, event: CommitMicroBatch) -> None:
        """Take the five steps; none is taken while the records that it depends on may still be
        lost."""
        log = self._log
        key = event.ledger_key
        ledger = self._ledgers.of(key)
        if log.in_flight(ledger.seen_at):
            log.refuse(event.request, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        replaced, seen_at = self._ledgers.note_run(event)
        if replaced:
            log.answer(
                TransactionAnswer(request=event.request, error=ErrorCode.RUN_REPLACED),
                after=seen_at,
            )
            return
        ledger = self._ledgers.of(key)  # A run that was noted may have begun it.
        refusal = self._commit_refusal(event, ledger)
        if refusal in (ErrorCode.ALREADY_COMMITTED, ErrorCode.BATCH_ID_TAKEN):
            committed = self._ledgers.committed(key, event.batch)
            seen_at = max(seen_at, self._abort_listed(key, event.members, event.batch))
            if refusal is ErrorCode.ALREADY_COMMITTED:
                seen_at = max(seen_at, self._ledgers.claim(event, by_write=True))
            answer = TransactionAnswer(request=event.request, error=refusal, committed=committed)
            log.answer(answer, after=seen_at)
        elif refusal is not ErrorCode.NONE:
            log.answer(TransactionAnswer(request=event.request, error=refusal), after=seen_at)
        else:
            self._write_commit(event, key, ledger)
            log.answer(TransactionAnswer(request=event.request), after=ledger.seen_at)

    def abort(self, event: AbortMembers) -> None:
        key = event.ledger_key
        seen_at = self._abort_listed(key, event.members, None)
        seen_at = max(seen_at, self._ledgers.give_up(key, event.write))
        self._log.answer(TransactionAnswer(request=event.request), after=seen_at)

    def note_markers(self, event: MarkersWritten) -> None:
        producer_id = event.producer_id
        key = self._ending.get(producer_id)
        if key is not None:
            self._ledgers[key].unmarked[producer_id] -= event.partitions
            self._drop_ended(key, self._ledgers[key])
            return
        member = self._members.get(producer_id)
        if member is not None and member.unmarked is not None:
            member.unmarked -= event.partitions
            self._drop_aborted(producer_id, member)

    def tick(self, now: Callable[[], Moment]) -> Iterator[None]:
        """Abort late members and forget ledgers; between the steps others have their turn."""
        for number, piece in enumerate(pieces(self._members)):
            if number:
                yield
            for producer_id in piece:
                self._abort_if_late(producer_id, now())
        yield from self._ledgers.forget_over(now, self._expiration_ms)

    def _abort_if_late(self, producer_id: int, at: Moment) -> None:
        member = self._members.get(producer_id)
        if member is None or member.unmarked is not None:
            return
        if at.now_ms - self.touched[member.batch] >= member.record.timeout_ms:
            self._abort(producer_id, member)

    def _commit_refusal(self, event: CommitMicroBatch, ledger: SinkLedger) -> ErrorCode:
        if self._is_committed(event, ledger):
            committed = self._ledgers.committed(event.ledger_key, event.batch)
            return answer_to(committed or CommittedMicroBatch(), event)
        if event.drained > 0:
            return ErrorCode.NOT_COMMITTED
        refusal = self._ledgers.number_refusal(event.ledger_key, event.owner)
        if refusal is not ErrorCode.NONE:
            return refusal
        if event.origins and not self._ledgers.has_room(event.ledger_key, event.origins):
            return ErrorCode.MESSAGE_TOO_LARGE
        if not self._ledgers.claims.are_repeated(event):
            return ErrorCode.BATCH_IDS_CHANGED
        if self._markers_are_missing(ledger):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self._a_member_is_lost(event) or self._origins_moved(event):
            return ErrorCode.MEMBER_LOST
        return ErrorCode.NONE

    def _is_committed(self, event: CommitMicroBatch, ledger: SinkLedger) -> bool:
        return self._ledgers.committed(event.ledger_key, event.batch) is not None

    def _markers_are_missing(self, ledger: SinkLedger) -> bool:
        return bool(ledger.record.ends)

    def _a_member_is_lost(self, event: CommitMicroBatch) -> bool:
        batch = event.ledger_key, event.batch
        for producer_id, epoch in event.members:
            member = self._open_member(producer_id, epoch)
            if member is None or member.batch != batch:
                return True
        return False

    def _origins_moved(self, event: CommitMicroBatch) -> bool:
        """Return True when another query has copied rows of the batch's source partitions since a
        member joined."""
        if not event.members or not event.origins:
            return False
        joined = min(self._members[each].record.origin_clock for each, _ in event.members)
        return self._ledgers.origins_of(event.sink).moved_since(joined, event.query, event.origins)

    def _write_commit(self, event: CommitMicroBatch, key: LedgerKey, ledger: SinkLedger) -> None:
        winners = {producer_id for producer_id, _ in event.members}
        swept = sorted(
            producer_id
            for batch, members in ledger.members.items()
            if batch <= event.batch
            for producer_id in members
        )
        ends = tuple(
            MemberEnd(
                producer_id,
                self._members[producer_id].record.epoch,
                producer_id in winners,
                self._members[producer_id].record.partitions,
            )
            for producer_id in swept
        )
        for producer_id in swept:
            self._close(producer_id)
        clock = self._ledgers.origins_of(event.sink).clock + 1
        record = replace(
            ledger.record,
            last=event.batch,
            ends=self._carried(ledger) + ends,
            origins=advanced(ledger.record.origins, event.origins, clock),
            once_ms=event.now_ms if is_once(event.query) else NO_TIME,
            owner=event.owner,
            run=event.run,
            rows=event.rows,
            winner=min(winners, default=NO_PRODUCER_ID),
            claim=event.claim,
        )
        self._ledgers.write(key, ledger, record)
        self.committed += not names_a_sink(event.sink, event.query, event.owner)
        self._send_ends(key, ledger)

    def _carried(self, ledger: SinkLedger) -> tuple[MemberEnd, ...]:
        """Return the ends whose markers are not all written: this record replaces theirs."""
        return ledger.record.ends

    def _send_ends(self, key: LedgerKey, ledger: SinkLedger) -> None:
        """Have the markers written, as soon as the record can't be lost."""
        ends = ledger.record.ends
        ledger.unmarked = {end.producer_id: set(end.partitions) for end in ends}
        for end in ends:
            self._ending[end.producer_id] = key

        def send() -> None:
            for end in ends:
                if end.partitions:
                    self._send_markers(end.producer_id, end.epoch, end.commits, end.partitions)
            if ends:
                self._drop_ended(key, ledger)
            elif self._ledgers.get(key) is ledger:  # Another number's end may have moved it.
                self._ledgers.settle(key)

        self._log.after(ledger.seen_at, send)

    def _drop_ended(self, key: LedgerKey, ledger: SinkLedger) -> None:
        """Forget members once every marker of the commit is written; the ledger records it last."""
        if any(ledger.unmarked.values()) or not ledger.record.ends:
            return
        for end in ledger.record.ends:
            del self._ending[end.producer_id]
            self._log.append((MemberKey(end.producer_id), None))
        ledger.unmarked = {}
        self._ledgers.settle(key)

    def _abort_listed(
        self, key: LedgerKey, members: Iterable[tuple[int, int]], batch: int | None
    ) -> int:
        """Abort the open ones of these members; return the number of the last record that the
        answer waits for."""
        number = self._log.replicated
        for producer_id, epoch in sorted(members):
            member = self._open_member(producer_id, epoch)
            if member is None or member.record.ledger != key:
                continue
            if batch is None or member.record.batch == batch:
                number = self._abort(producer_id, member)
        return number

    def _abort(self, producer_id: int, member: SinkMember) -> int:
        self._close(producer_id)
        self._members[producer_id] = member
        member.record = replace(member.record, aborting=True)
        member.seen_at = self._log.append((MemberKey(producer_id), member.record))
        self._send_abort(producer_id, member)
        return member.seen_at

    def _send_abort(self, producer_id: int, member: SinkMember) -> None:
        partitions = member.record.partitions
        member.unmarked = set(partitions)

        def send() -> None:
            if partitions:
                self._send_markers(producer_id, member.record.epoch, False, partitions)
            else:
                self._drop_aborted(producer_id, member)

        self._log.after(member.seen_at, send)

    def _drop_aborted(self, producer_id: int, member: SinkMember) -> None:
        if not member.unmarked:
            del self._members[producer_id]
            self._log.append((MemberKey(producer_id), None))
            self._ledgers.drop_empty(member.record.ledger)

    def _send_markers(
        self, producer_id: int, epoch: int, commits: bool, partitions: frozenset[TopicPartition]
    ) -> None:
        markers = SendMarkers(
            producer_id=producer_id, producer_epoch=epoch, commits=commits, partitions=partitions
        )
        self._log.emit(markers)

    def _open_member(self, producer_id: int, epoch: int) -> SinkMember | None:
        member = self._members.get(producer_id)
        if member is None or member.unmarked is not None or member.record.epoch != epoch:
            return None
        return member

    def _close(self, producer_id: int) -> None:
        """Stop treating the member as open."""
        member = self._members.pop(producer_id)
        members = self._ledgers[member.record.ledger].members
        members[member.record.batch].discard(producer_id)
        if not members[member.record.batch]:
            del members[member.record.batch]
            self.touched.pop(member.batch, None)
