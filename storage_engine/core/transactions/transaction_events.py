"""Events and effects of a transaction coordinator.

A request carries a number that the driver has given it, and gets exactly one answer with that
number, at once or when a record is replicated. Source: KIP-98, KIP-890, R-SPARK2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    CountAppended,
    Moment,
    Replicated,
    StateLog,
    TickAgain,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_ROWS,
    LedgerKey,
    NumberClaim,
    StateEntry,
    StateKey,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """InitProducerId with a transactional id."""

    request: int
    transactional_id: str
    timeout_ms: int
    now_ms: int
    fresh_producer_id: int
    """A producer id that was never given out before; used when the transactional id needs one."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    """The producer's present id and epoch, when it goes on after an error (KIP-360)."""
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """AddPartitionsToTxn; AddOffsetsToTxn too, with the group's partition of the offsets topic.

    `by_leader` is True when the partition's leader asks on behalf of a client whose transactions
    each have an epoch of their own."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    now_ms: int
    by_leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """A partition leader asks whether a producer may write: whether its transaction is open and has
    these partitions."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindTransaction:
    """A partition leader asks whether an open or ending transaction of the producer has these
    partitions, whoever the producer is. The answer is INVALID_TXN_STATE when none has, and none
    will: only this coordinator's log can tell, and all of it is replicated by then."""

    request: int
    producer_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """EndTxn. `bumps_epoch`: the client's transactions each have an epoch of their own."""

    request: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    now_ms: int
    fresh_producer_id: int
    bumps_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchRequest:
    """A request about one micro-batch of a query that writes to a sink."""

    request: int
    sink: str
    query: str
    batch: int
    now_ms: int
    """The monotonic time of this request."""

    @property
    def ledger_key(self) -> LedgerKey:
        return LedgerKey(self.sink, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(MicroBatchRequest):
    owner: str = ""
    """The streaming query that a named batch write is a part of; empty: none."""
    run: UUID | None = None
    """The run of the streaming query; None where the client does not say."""
    claim: NumberClaim | None = None
    """Which write of the streaming query a named batch write is; None without a streaming
    query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMicroBatch(RunRequest):
    """A task attempt wants a transaction in a micro-batch."""

    timeout_ms: int
    fresh_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnlistPartitions:
    """AddPartitionsToTxn of a member."""

    request: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyMember:
    request: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchHeartbeat(MicroBatchRequest):
    """An attempt of the batch is still working: all transactions of the batch stay open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMicroBatch(RunRequest):
    """The driver names the attempts that make up the micro-batch."""

    members: frozenset[tuple[int, int]]
    """The (producer id, epoch) of each."""
    drained: int
    """The number of tasks that got ALREADY_COMMITTED and wrote nothing."""
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """By source partition the highest offset in the batch, inclusive; empty without
    `idempotentKey`."""
    rows: int = NO_ROWS
    """The number of rows of the tasks, including those that the sink already has by origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMembers:
    """The driver gives attempts up, by producer id and not by batch."""

    request: int
    sink: str
    query: str
    members: frozenset[tuple[int, int]]
    write: UUID | None = None
    """The named batch write that is given up with them, whether it was committed or not."""

    @property
    def ledger_key(self) -> LedgerKey:
        return LedgerKey(self.sink, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Leaders have acknowledged the markers of a producer in these partitions, or the partitions
    have been deleted."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTimeouts:
    """Time has passed: transactions may have timed out, and ids may have expired."""

    at: Moment


Event = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | FindTransaction
    | EndTransaction
    | JoinMicroBatch
    | EnlistPartitions
    | VerifyMember
    | MicroBatchHeartbeat
    | CommitMicroBatch
    | AbortMembers
    | Replicated
    | MarkersWritten
    | CheckTimeouts
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Have the leaders of the partitions write the marker, with retries, then report
    MarkersWritten."""

    producer_id: int
    producer_epoch: int
    commits: bool
    partitions: frozenset[TopicPartition]
    has_own_epoch: bool = False
    """True when no record of the transaction was written under the epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class CommittedMicroBatch:
    """The write that has committed a batch, as far as the coordinator still knows it."""

    owner: str = ""
    """As in RunRequest."""
    run: UUID | None = None
    rows: int = NO_ROWS
    winner: int = NO_PRODUCER_ID
    """One of the batch's members."""
    claim: NumberClaim | None = None


@dataclass(slots=True, kw_only=True)
class TransactionAnswer(Answer):
    """The answer to any request of a transaction coordinator."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """In answers to JoinMicroBatch, also when the batch is committed: by source partition the
    highest offset that the sink has, inclusive."""
    committed: CommittedMicroBatch | None = None
    """Set with ALREADY_COMMITTED and BATCH_ID_TAKEN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Records of the log contradict each other: the driver logs it, and requests for the key are
    refused from now on."""

    key: StateKey
    reason: str


TransactionEffect = SendMarkers | Contradiction
Effect = (
    AppendRecord[StateEntry]
    | CountAppended
    | TransactionAnswer
    | AnswerEach[TransactionAnswer]
    | TickAgain
    | TransactionEffect
)
TransactionLog = StateLog[
    StateEntry,
    TransactionAnswer | AnswerEach[TransactionAnswer] | TickAgain | TransactionEffect,
]
