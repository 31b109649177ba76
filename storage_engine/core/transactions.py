"""The transaction coordinator of one partition of the state log, from the election of its leader to
the next. Its one rule: `step(event)` returns effects, touches nothing else, and promises nothing
that the next coordinator would not find in the log.

    producers          transactional_ids.py   KIP-98, KIP-890
    exactly-once sink  batch_commits.py       R-SPARK2
    both               state_log.py           what waits for which record

The driver appends the records in order, tells when they are replicated, has markers written, and
drops the coordinator when an append fails or the partition is led elsewhere: requests that have no
answer then are answered NOT_COORDINATOR, and the log says what became of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from storage_engine.core.batch_commits import BatchCommits
from storage_engine.core.contradictions import contradictions, ending_ids
from storage_engine.core.coordination import Moment, Replicated, UnreadableRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.state_log import StateLog
from storage_engine.core.transaction_events import (
    AbortMembers,
    AddPartitions,
    Answer,
    CommitBatch,
    Contradiction,
    Effect,
    EndTransaction,
    EnlistPartitions,
    Event,
    Heartbeat,
    InitProducer,
    JoinBatch,
    MarkersWritten,
    Tick,
    VerifyMember,
    VerifyPartitions,
)
from storage_engine.core.transaction_state import (
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
)
from storage_engine.core.transactional_ids import TransactionalIds

PRODUCER_TIMEOUT_MAX_MS = 15 * 60 * 1000
"""`transaction.max.timeout.ms`: the longest that a transaction of a producer may stay open."""

SINK_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000
"""The same of the exactly-once sink, whose transactions last as long as a micro-batch."""

EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000
"""`transactional.id.expiration.ms`: how long an id is kept that nobody uses."""


class TransactionCoordinator:
    """Both kinds of transactions over one log."""

    def __init__(
        self,
        *,
        producer_timeout_max_ms: int = PRODUCER_TIMEOUT_MAX_MS,
        sink_timeout_max_ms: int = SINK_TIMEOUT_MAX_MS,
        expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self._log = StateLog(lambda request, error: Answer(request=request, error=error))
        self.producers = TransactionalIds(
            self._log, timeout_max_ms=producer_timeout_max_ms, expiration_ms=expiration_ms
        )
        self.batches = BatchCommits(
            self._log, timeout_max_ms=sink_timeout_max_ms, expiration_ms=expiration_ms
        )
        """To look at, as `producers` is."""
        self._unreadable: set[StateKey] = set()
        """What has a record that means nothing here, and members that such a record may have
        committed: they stay as they are until a coordinator that can read it leads."""

    def restore(
        self, content: Mapping[StateKey, StateRecord | UnreadableRecord], at: Moment
    ) -> list[Effect]:
        """Begin with the newest record of each key in the log; once, before any event.

        What follows from them waits until they are replicated: `Replicated(number=0)`.
        """
        self.producers.begin(at)
        members: list[tuple[int, MemberRecord]] = []
        ledgers: list[tuple[LedgerKey, LedgerRecord]] = []
        numbers: list[tuple[NumbersKey, NumbersRecord]] = []
        untrue = contradictions(content)
        for key, unreadable in untrue.items():
            self._log.emit(Contradiction(key=key, reason=unreadable.reason))
            # Whether these have ended, and how, can't be told.
            self._unreadable.update(MemberKey(each) for each in ending_ids(content[key]))
        for key, record in {**content, **untrue}.items():
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
        self.batches.restore(ledgers, self._not_ended_unseen(members), at.now_ms, numbers)
        return self._log.take_effects()

    def _not_ended_unseen(
        self, members: list[tuple[int, MemberRecord]]
    ) -> list[tuple[int, MemberRecord]]:
        """But for those that a ledger may have committed, with an answer, and that can't be read:
        after its time one would be aborted. One that is aborting was never committed."""
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
        if self._unreadable and not self._unreadable.isdisjoint(
            (*_keys(event), *_member_keys(event))
        ):
            request: int = event.request  # type: ignore[union-attr]
            return [Answer(request=request, error=ErrorCode.UNKNOWN_SERVER_ERROR)]
        match event:
            case InitProducer():
                self.producers.init_producer(event)
            case AddPartitions():
                self.producers.add_partitions(event)
            case VerifyPartitions():
                self.producers.verify(event)
            case EndTransaction():
                self.producers.end(event)
            case MarkersWritten():
                if not self.producers.note_markers(event):
                    self.batches.note_markers(event)
            case Replicated():
                self._log.note_replicated(event.number)
            case Tick():
                self.producers.tick(event.at)
                self.batches.tick(event.at)
            case _:
                self._step_batches(event)
        return self._log.take_effects()

    def _step_batches(
        self,
        event: JoinBatch | EnlistPartitions | VerifyMember | Heartbeat | CommitBatch | AbortMembers,
    ) -> None:
        match event:
            case JoinBatch():
                self.batches.join(event)
            case EnlistPartitions():
                self.batches.enlist(event)
            case VerifyMember():
                self.batches.verify(event)
            case Heartbeat():
                self.batches.heartbeat(event)
            case CommitBatch():
                self.batches.commit(event)
            case AbortMembers():
                self.batches.abort(event)
            case _:
                assert_never(event)


def _member_keys(event: Any) -> Iterator[StateKey]:
    """Of the members that a request is about. A commit is not among them: it is told that a member
    is lost, and the batch is written again."""
    match event:
        case EnlistPartitions() | VerifyMember():
            yield MemberKey(event.producer_id)
        case AbortMembers():
            for producer_id, _ in event.members:
                yield MemberKey(producer_id)


def _keys(event: Any) -> Iterator[StateKey]:
    """Of what a request is about."""
    if hasattr(event, "transactional_id"):
        yield TransactionalIdKey(event.transactional_id)
    if hasattr(event, "query"):
        yield LedgerKey(event.sink, event.query)
