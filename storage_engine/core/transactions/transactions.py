"""The transaction coordinator of one partition of the state log, from the election of its leader to
the next. `step(event)` returns effects, touches nothing else, and promises nothing that the next
coordinator would not find in the log.

    producers          transactional_ids.py   KIP-98, KIP-890
    exactly-once sink  micro_batch_commits.py       R-SPARK2
    both               coordinator_log.py         what waits for which record

The driver appends the records in order, reports when they are replicated, has markers written, and
drops the coordinator when an append fails or the partition is led elsewhere: requests that have no
answer then are answered NOT_COORDINATOR, and the log says what became of them.
"""

from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from typing import assert_never

from storage_engine.core.coordinator_log import (
    Moment,
    Replicated,
    StateLog,
    TickAgain,
    UnreadableRecord,
    pieces,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_events import (
    AbortMembers,
    AddPartitions,
    CheckTimeouts,
    CommitMicroBatch,
    Contradiction,
    Effect,
    EndTransaction,
    EnlistPartitions,
    Event,
    FindTransaction,
    InitProducer,
    JoinMicroBatch,
    MarkersWritten,
    MicroBatchHeartbeat,
    TransactionAnswer,
    TransactionLog,
    VerifyMember,
    VerifyPartitions,
)
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberKey,
    MemberRecord,
    NumbersKey,
    NumbersRecord,
    StateKey,
    StateRecord,
    TransactionalIdKey,
    TransactionRecord,
    contradictions,
    ending_ids,
    part_and_number,
)
from storage_engine.core.transactions.transactional_ids import TransactionalIds

PRODUCER_TIMEOUT_MAX_MS = 15 * 60 * 1000
"""`transaction.max.timeout.ms`: the longest time that a producer's transaction may stay open."""

SINK_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000
"""The same for the exactly-once sink, whose transactions last as long as a micro-batch."""

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
"""`transactional.id.expiration.ms`: how long an unused id is kept."""


MAX_MESSAGE_BYTES = 16 << 20
"""`max.message.bytes` of the log: no record may be larger."""

OTHER_BYTES = 128 << 10
"""The room that a record of origins has for the rest: names, runs, the ends of a commit of some
tasks."""


def refusal(request: int, error: ErrorCode) -> TransactionAnswer:
    return TransactionAnswer(request=request, error=error)


class TransactionCoordinator:
    """The transactions of producers and of the exactly-once sink, over one log."""

    def __init__(
        self,
        *,
        producer_timeout_max_ms: int = PRODUCER_TIMEOUT_MAX_MS,
        sink_timeout_max_ms: int = SINK_TIMEOUT_MAX_MS,
        expiration_ms: int = EXPIRATION_MS,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._log: TransactionLog = StateLog(refusal)
        self.producers = TransactionalIds(
            self._log, timeout_max_ms=producer_timeout_max_ms, expiration_ms=expiration_ms
        )
        self.batches = MicroBatchCommits(
            self._log,
            timeout_max_ms=sink_timeout_max_ms,
            expiration_ms=expiration_ms,
            most_origin_bytes=max_message_bytes - min(max_message_bytes // 2, OTHER_BYTES),
        )
        """The micro-batches of sinks; for reading only, as `producers`."""
        self._unreadable: set[StateKey] = set()
        """The keys of records that can't be decoded, and of members that such a record may have
        committed: they stay as they are until a coordinator of a version that can decode them
        leads."""
        self._round: Iterator[None] | None = None
        """The round of periodic checks that is under way."""
        self._at = Moment(0, 0)
        """The time at which its present step began."""
        self._blind_sinks: set[str] = set()
        """The sinks with a ledger among them: their origins are unknown."""

    def restore(
        self, content: Mapping[StateKey, StateRecord | UnreadableRecord], at: Moment
    ) -> Generator[None, None, list[Effect]]:
        """Begin with the newest record of each key in the log; called once, before any event, and
        in pieces.

        Effects that follow from them wait until they are replicated: `Replicated(number=0)`.
        """
        self.producers.begin(at)
        members: list[tuple[int, MemberRecord]] = []
        ledgers: list[tuple[LedgerKey, LedgerRecord]] = []
        numbers: list[tuple[NumbersKey, NumbersRecord]] = []
        untrue = yield from contradictions(content)
        for key, unreadable in untrue.items():
            self._log.emit(Contradiction(key=key, reason=unreadable.reason))
            # It is unknown whether and how these have ended.
            self._unreadable.update(MemberKey(each) for each in ending_ids(content[key]))
        # Keys alone: a tuple of each with its record is more than all else in such a copy.
        for piece in pieces(content):
            for key in piece:
                record = untrue.get(key, content[key])
                match key, record:
                    case TransactionalIdKey(), TransactionRecord():
                        self.producers.restore(key.transactional_id, record, at)
                    case MemberKey(), MemberRecord():
                        members.append((key.producer_id, record))
                    case LedgerKey(), LedgerRecord():
                        ledgers.append((key, record))
                    case NumbersKey(), NumbersRecord():
                        numbers.append((key, record))
                    case _, UnreadableRecord():
                        self._unreadable.add(key)
                    case _:
                        raise AssertionError(f"the record of {key} is of another kind: {record}")
            yield
        self._blind_sinks = {each.sink for each in self._unreadable if isinstance(each, LedgerKey)}
        known: list[tuple[int, MemberRecord]] = []
        for some in pieces(members):
            known += self._not_ended_unseen(some)
            yield
        yield from self.batches.restore(ledgers, known, at.now_ms, numbers, self._unreadable)
        return self._log.take_effects()

    def _not_ended_unseen(
        self, members: list[tuple[int, MemberRecord]]
    ) -> list[tuple[int, MemberRecord]]:
        """Return the members without those that a ledger which can't be decoded may have committed:
        they would be aborted after their timeout. A member that is aborting was never committed."""
        known = []
        for producer_id, record in members:
            if MemberKey(producer_id) in self._unreadable:
                continue
            if record.ledger in self._unreadable and not record.aborting:
                self._unreadable.add(MemberKey(producer_id))
            else:
                known.append((producer_id, record))
        return known

    def step(self, event: Event) -> list[Effect]:
        if self._unreadable and self._needs_unreadable(event):
            assert not isinstance(event, MarkersWritten | Replicated | CheckTimeouts), (
                "these need no record"
            )
            return [refusal(event.request, ErrorCode.UNKNOWN_SERVER_ERROR)]
        match event:
            case InitProducer():
                self.producers.init_producer(event)
            case AddPartitions():
                self.producers.add_partitions(event)
            case VerifyPartitions():
                self.producers.verify(event)
            case EndTransaction():
                self.producers.end(event)
            case FindTransaction():
                self._find(event)
            case MarkersWritten():
                if not self.producers.note_markers(event):
                    self.batches.note_markers(event)
            case Replicated():
                self._log.note_replicated(event.number)
            case CheckTimeouts():
                self._tick(event.at)
            case _:
                self._step_batches(event)
        return self._log.take_effects()

    def _find(self, event: FindTransaction) -> None:
        known = self.producers.partitions_of(event.producer_id) | self.batches.partitions_of(
            event.producer_id
        )
        if event.partitions <= known:
            self._log.emit(TransactionAnswer(request=event.request))
        else:
            # A failover must not bring back a transaction whose end is in flight.
            nobody = refusal(event.request, ErrorCode.INVALID_TXN_STATE)
            self._log.answer(nobody, after=self._log.appended)

    def _tick(self, at: Moment) -> None:
        """Go on with the round of checks that is under way, or begin one."""
        # A step may come long after the one before it, as when replicas were missing.
        self._at = at
        if self._round is None:
            self._round = chain(
                self.producers.tick(lambda: self._at), self.batches.tick(lambda: self._at)
            )
        for _ in self._round:
            self._log.emit(TickAgain())
            return
        self._round = None

    def _needs_unreadable(self, event: Event) -> bool:
        """Return True when the answer would depend on a record that this version can't decode."""
        if isinstance(event, FindTransaction):
            # Any of them may be about the producer.
            return True
        if not self._unreadable.isdisjoint((*_keys(event), *_member_keys(event))):
            return True
        # The answer to each join has the sink's origins, which any of its ledgers may hold.
        if isinstance(event, JoinMicroBatch) or (
            isinstance(event, CommitMicroBatch) and event.origins
        ):
            return event.sink in self._blind_sinks
        return False

    def _step_batches(
        self,
        event: JoinMicroBatch
        | EnlistPartitions
        | VerifyMember
        | MicroBatchHeartbeat
        | CommitMicroBatch
        | AbortMembers,
    ) -> None:
        match event:
            case JoinMicroBatch():
                self.batches.join(event)
            case EnlistPartitions():
                self.batches.enlist(event)
            case VerifyMember():
                self.batches.verify(event)
            case MicroBatchHeartbeat():
                self.batches.heartbeat(event)
            case CommitMicroBatch():
                self.batches.commit(event)
            case AbortMembers():
                self.batches.abort(event)
            case _:
                assert_never(event)


def _member_keys(event: Event) -> Iterator[StateKey]:
    """Return the keys of the members that a request is about. A commit has none: its answer is that
    a member is lost, and the batch is written again."""
    match event:
        case EnlistPartitions() | VerifyMember():
            yield MemberKey(event.producer_id)
        case AbortMembers():
            for producer_id, _ in event.members:
                yield MemberKey(producer_id)


def _keys(event: Event) -> Iterator[StateKey]:
    """Return the keys that a request is about, or that are read or written for it."""
    match event:
        case InitProducer() | AddPartitions() | VerifyPartitions() | EndTransaction():
            yield TransactionalIdKey(event.transactional_id)
        case MicroBatchHeartbeat() | AbortMembers():
            yield event.ledger_key
        case JoinMicroBatch() | CommitMicroBatch():
            yield event.ledger_key
            named = part_and_number(event.query)
            if named is not None:
                yield NumbersKey(event.sink, named[0])
                yield LedgerKey(event.sink, event.owner)
