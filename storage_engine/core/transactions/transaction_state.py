"""Keys and records of a transaction coordinator's log, and the states of a transaction. The newest
record of each key is all that a new coordinator needs.

    key                    record              ends when
    TransactionalIdKey     TransactionRecord   the id expires (tombstone)
    MemberKey              MemberRecord        its markers are written (tombstone)
    LedgerKey              LedgerRecord        never: it is what makes a replay harmless; but that
                                               of a batch write ends, see below
    NumbersKey             NumbersRecord       never

The first is Kafka's; the others belong to the batch commit of Headrace's sink: a member is the
transaction of one task attempt, a ledger is what one query has committed to one sink. A batch write
has a ledger of its own. That of a write without a name is forgotten in time, that of a named one
ends in the numbers of its part of the sink. Source: KIP-98, KIP-890, R-SPARK2.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.ids import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
NO_ROWS = -1
"""The number of rows is not known."""
MAX_PRODUCER_EPOCH = 32_767

MOST_ID_BYTES = 32_767
"""The longest transactional id in UTF-8: it is a string of a record of the log."""

NO_BATCH = -1
"""The last batch of a query that has committed none: Spark counts from 0."""


class TransactionState(enum.IntEnum):
    """Kafka's states of a transactional id, with the numbers of its record.

        EMPTY            -> ONGOING | COMPLETE_ABORT (epoch bump without a transaction)
        ONGOING          -> PREPARE_COMMIT | PREPARE_ABORT
        PREPARE_COMMIT   -> COMPLETE_COMMIT, when every partition has its marker
        PREPARE_ABORT    -> COMPLETE_ABORT, likewise
        COMPLETE_*       -> ONGOING | EMPTY (InitProducerId) | COMPLETE_ABORT (as EMPTY)

    DEAD and PREPARE_EPOCH_FENCE never leave Kafka's memory, and do not exist here.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_ending(self) -> bool:
        """Return True when the end is decided but the markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class TransactionalIdKey:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """A producer id that JoinMicroBatch gave out; none is ever used again."""

    producer_id: int


@dataclass(frozen=True, slots=True)
class LedgerKey:
    sink: str
    query: str


@dataclass(frozen=True, slots=True)
class NumbersKey:
    """One part of a sink that named batch writes go to."""

    sink: str
    part: str


StateKey = TransactionalIdKey | MemberKey | LedgerKey | NumbersKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """One transactional id."""

    producer_id: int
    producer_epoch: int
    """While the transaction ends with a bumped epoch, the bumped one: the markers carry it
    (KIP-890)."""
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = NO_TIME
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that replaces one without further epochs, once its last transaction is complete."""
    client_version: int = 0
    """2 when the client's transactions each have an epoch of their own (KIP-890), else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """The transaction of one task attempt, until the commit of its batch, or an abort."""

    sink: str
    query: str
    batch: int
    epoch: int
    timeout_ms: int
    origin_clock: int
    """The sink's clock when the attempt joined: later moves of origins are unknown to the
    attempt."""
    aborting: bool = False
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def ledger(self) -> LedgerKey:
        return LedgerKey(self.sink, self.query)


@dataclass(frozen=True, slots=True)
class MemberEnd:
    """How a commit ended one member; kept until every marker of it is written."""

    producer_id: int
    epoch: int
    commits: bool
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Origin:
    """The offset up to which a source partition has been copied to a sink."""

    offset: int
    """The highest committed offset, inclusive."""
    clock: int
    """The sink's clock at the move."""


@dataclass(frozen=True, slots=True)
class NumberClaim:
    """The write that may say of a number that it has written it, in the `foreachBatch` of a
    streaming query."""

    micro_batch: int
    """Spark's number of the micro-batch."""
    attempt: UUID
    """The call of `foreachBatch`, which is another one when the micro-batch is repeated."""
    write: UUID | None
    """None: one that was given up, so the next write of the call is its repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """The commits of one query to one sink."""

    last: int = NO_BATCH
    ends: tuple[MemberEnd, ...] = ()
    origins: Mapping[TopicPartition, Origin] = field(default_factory=dict)
    """The origins of this query by source partition; those of the sink are the highest of all its
    queries."""
    once_ms: int = NO_TIME
    """The time of the commit of a query that can't be repeated; NO_TIME for all others, which are
    kept for ever."""
    owner: str = ""
    """The streaming query that a named batch write is a part of; empty: none."""
    run: UUID | None = None
    """The run of the query that has committed `last`, if the client named it."""
    rows: int = NO_ROWS
    """The number of rows of the batch `last`."""
    winner: int = NO_PRODUCER_ID
    """One of the members that have written `last`: a client that names it asks about a commit of
    its own."""
    claim: NumberClaim | None = None
    """Of a named batch write that is a part of a streaming query."""
    runs: tuple[UUID, ...] = ()
    """The runs of the query that have been seen, the newest last; it has replaced all others."""


@dataclass(frozen=True, slots=True)
class NumberInterval:
    """Numbers of named batch writes that are all committed, by the same streaming query or by none.

    Invariant: `first` <= `last`, both inclusive.
    """

    first: int
    last: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersRecord:
    """The committed numbers of one part of a sink, without the newest, which have ledgers.

    Invariant: ascending, disjoint; neighbours that touch have different owners.
    """

    intervals: tuple[NumberInterval, ...] = ()


StateRecord = TransactionRecord | MemberRecord | LedgerRecord | NumbersRecord

StateEntry = tuple[StateKey, StateRecord | None]
"""A key with its new record; None: a tombstone."""

StateContent = dict[StateKey, StateRecord | UnreadableRecord]
"""The newest record of each key of a log."""


def is_too_long(transactional_id: str) -> bool:
    """Return True when no record can hold the id, so that no producer can have it."""
    # Each byte of a character is counted only where that can matter.
    if 4 * len(transactional_id) <= MOST_ID_BYTES:
        return False
    return len(transactional_id.encode()) > MOST_ID_BYTES


def state_partition(name: str, partitions: int) -> int:
    """Return the partition of the state log for a transactional id or a sink id.

    The hash is that of a Java string, made positive as Kafka does, so that both place an id
    equally.
    """
    code = 0
    encoded = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        code = (31 * code + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0  # it has no positive counterpart in 32 bits
    return min(code, 0x1_0000_0000 - code) % partitions
