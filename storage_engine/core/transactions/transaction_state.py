"""Keys and records of a transaction coordinator's log, and the states of a transaction. The newest
record of each key is all that a new coordinator needs.

    key                    record              ends when
    TransactionalIdKey     TransactionRecord   the id expires (tombstone)
    MemberKey              MemberRecord        its markers are written (tombstone)
    LedgerKey              LedgerRecord        never: it makes a replay harmless; but a batch
                                               write's ledger ends, see below
    NumbersKey             NumbersRecord       never

The first is Kafka's; the others belong to the batch commit of Headrace's sink: a member is the
transaction of one task attempt, a ledger records the commits of one query to one sink. A batch
write has its own ledger, which is forgotten in time where the write has no name, and ends in the
numbers of its part of the sink where it has one.

`contradictions` finds records of the log that can each be decoded but contradict one another. They
are treated as records that can't be decoded, so that requests about them are refused and all others
are served; a coordinator that used them would fail, and so would the next one.

A producer id ends in one record: its transactional id's, or the ledger that carries its end. If two
records did so, nobody could decide to which of them a marker belongs.

The names of the exactly-once sink's transactions on Kafka's APIs, and of its batch writes, are
defined here. No transactional producer can have one of these names, and every member has one.

AddPartitionsToTxn and Produce carry a transactional id; a sink's members have a prefixed one, and
the sink id after it selects the coordinator. A batch write without a name counts as a query that
can't be repeated, which its prefix shows. A named batch write counts as a query of its own, too:
its name contains the part of the sink and the number.

Source: KIP-98, KIP-890, R-SPARK2.
"""

import enum
import struct
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from storage_engine.core.coordinator_log import UnreadableRecord, pieces
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
    """The write that may claim a number as written by itself, in the `foreachBatch` of a streaming
    query."""

    micro_batch: int
    """Spark's number of the micro-batch."""
    attempt: UUID
    """The call of `foreachBatch`, which is another one when the micro-batch is repeated."""
    write: UUID | None
    """None: the write was given up, so the next write of the call is its repetition."""


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
    """The claim of a named batch write that is a part of a streaming query."""
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


_UTF_16_UNIT = struct.Struct(">H")
_HASHES_KEPT = 4096
_HASH_KEPT_MOST_CHARACTERS = 249
"""Names come again with each request: those of so many short ones are kept, in 5 MB at most."""


def state_partition(name: str, partitions: int) -> int:
    """Return the partition of the state log for a transactional id, a sink id or a group id.

    The hash is that of a Java string, made positive as Kafka does, so that both place an id
    equally.
    """
    is_short = len(name) <= _HASH_KEPT_MOST_CHARACTERS
    return (_kept_hash(name) if is_short else _hash(name)) % partitions


def _hash(name: str) -> int:
    code = 0
    encoded = name.encode("utf-16-be", "surrogatepass")
    for (unit,) in _UTF_16_UNIT.iter_unpack(encoded):
        code = (31 * code + unit) & 0xFFFFFFFF
    if code == 0x80000000:
        return 0  # it has no positive counterpart in 32 bits
    return min(code, 0x1_0000_0000 - code)


_kept_hash = lru_cache(_HASHES_KEPT)(_hash)


def ending_ids(record: StateRecord | UnreadableRecord) -> list[int]:
    """Return the producer ids whose markers are still to be written, as the record says."""
    match record:
        case TransactionRecord() if record.state.is_ending:
            return [record.producer_id]
        case LedgerRecord():
            return [end.producer_id for end in record.ends]
        case _:
            return []


def contradictions(
    content: Mapping[StateKey, StateRecord | UnreadableRecord],
) -> Generator[None, None, dict[StateKey, UnreadableRecord]]:
    """Return the records that contradict others, each replaced by an UnreadableRecord with the
    reason; looked for in pieces."""
    places: dict[int, list[StateKey]] = {}
    for piece in pieces(content):
        for key in piece:
            for producer_id in ending_ids(content[key]):
                places.setdefault(producer_id, []).append(key)
        yield
    return {
        key: UnreadableRecord(f"producer id {producer_id} ends in several places")
        for producer_id, keys in places.items()
        if len(keys) > 1
        for key in keys
    }


MEMBER_PREFIX = "__headrace_sink/"
ONCE_PREFIX = "__headrace_once/"
"""The prefix of the query id of a batch write without a name; the rest of it is never used
again."""
NAMED_PREFIX = "__headrace_number/"
"""The prefix of the query id of a named batch write; its number and its part follow."""
MOST_NUMBER = 2**63 - 1
MOST_DIGITS = len(str(MOST_NUMBER))
NO_QUERY = ""
"""The owner of a batch write that is no part of a streaming query. No query has this name, so that
a sink keeps under it what belongs to all of its queries."""


def member_transactional_id(sink: str) -> str:
    return MEMBER_PREFIX + sink


def is_member(transactional_id: str) -> bool:
    """Return True when the producer is a member of some sink's micro-batch."""
    return transactional_id.startswith(MEMBER_PREFIX)


def is_once(query: str) -> bool:
    """Return True when nobody will ask for the query's batch again once its job has ended."""
    return query.startswith(ONCE_PREFIX)


def named_write(part: str, number: int) -> str:
    """Return the query id of the batch write of that number to that part of a sink."""
    return f"{NAMED_PREFIX}{number}/{part}"


def part_and_number(query: str) -> tuple[str, int] | None:
    """Return the part and the number of a named batch write; None for other queries, and for a name
    that `named_write` does not make: a second name of one number would be a second ledger of it."""
    if not query.startswith(NAMED_PREFIX):
        return None
    number, slash, part = query.removeprefix(NAMED_PREFIX).partition("/")
    if not slash or len(number) > MOST_DIGITS or not number.isascii() or not number.isdigit():
        return None
    value = int(number)
    return (part, value) if value <= MOST_NUMBER and named_write(part, value) == query else None


def names_a_sink(sink: str, query: str, owner: str) -> bool:
    """Return True when the record under a query's own name only names the sink to which it writes,
    as its owner. Micro-batches are committed there."""
    return sink == query and owner != ""


def coordinated_name(transactional_id: str) -> str:
    """Return the part of a transactional id that selects the coordinator."""
    return transactional_id.removeprefix(MEMBER_PREFIX)
