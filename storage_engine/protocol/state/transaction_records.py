"""Records of `__transaction_state`: what a transaction coordinator keeps, as bytes. Bytes are
trusted no further than they can be read; anything else is a CorruptRecordError.

    key version  fields                               value
    0            transactional id                     Kafka's TransactionLogValue, version 0 or 1
    1000         producer id                          a member of a micro-batch, version 0
    1001         sink, query                          a ledger, version 0
    1002         sink, part                           numbers of named batch writes, version 0

Kafka's part is Kafka's byte for byte (written as version 1); ours begin far above, so that neither
takes the other's for its own. Big endian; key and value begin with their version as int16. Keys,
and version 0 of Kafka's value, are plain, all other values flexible (KIP-482):

    member       sink, query string; batch int64; epoch int16; timeout_ms int32; origin_clock int64;
                 aborting int8; partitions
    ledger       last int64; sets array of partitions; ends array of (producer_id int64, epoch
                 int16, commits int8, index into sets int32); origins array of (topic string, array
                 of (partition int32, offset int64, clock int64)); tagged: 0 once_ms int64,
                 1 owner string, 2 run uuid, 3 rows int64, 4 runs uuids, one behind the other,
                 5 winner int64, 6 claim: micro_batch int64, attempt uuid, write uuid or zeros
    numbers      owners array of string; intervals array of (first int64, last int64, index into
                 owners int32); ascending and disjoint
    partitions   array of (topic string, array of int32)

The tasks of a job mostly write to the same partitions: so ends share sets. Source: KIP-98, KIP-915
(unknown tagged fields are skipped), Kafka's TransactionLogKey.json and TransactionLogValue.json.
"""

from collections.abc import Mapping
from uuid import UUID

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import TopicPartition, by_topic, numbers_by_topic
from storage_engine.core.transactions.transaction_state import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_ROWS,
    NO_TIME,
    LedgerKey,
    LedgerRecord,
    MemberEnd,
    MemberKey,
    MemberRecord,
    NumberClaim,
    NumberInterval,
    NumbersKey,
    NumbersRecord,
    Origin,
    StateKey,
    StateRecord,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.protocol.apis.fields import boolean, custom, int16, int32, int64, name
from storage_engine.protocol.apis.struct_codec import lay_out, read_struct
from storage_engine.protocol.apis.wire import Reader, Writer
from storage_engine.protocol.state.state_fields import StateFields

TRANSACTION_KEY = 0
MEMBER_KEY = 1000
LEDGER_KEY = 1001
NUMBERS_KEY = 1002

_UUID_BYTES = 16
_NO_WRITE = UUID(int=0)

ORIGIN_CLOCK_MAX = 1 << 62
"""The largest clock, far above that of any sink, and with room above it for further commits."""

Partitions = frozenset[TopicPartition]


def _write_partitions(writer: Writer, partitions: Partitions) -> None:
    topics = numbers_by_topic(sorted(partitions))
    writer.count(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.int32s(numbers)
        writer.tags()


def _read_partitions(reader: Reader) -> Partitions:
    """Read partitions; Kafka's null is an empty set."""
    partitions: list[TopicPartition] = []
    for _ in range(max(0, reader.count(2, -1))):
        topic = reader.name()
        numbers = reader.int32s()
        if any(number < 0 for number in numbers):
            raise InvalidRequestError(f"topic {topic} has no partition {min(numbers)}")
        partitions.extend(TopicPartition(topic, number) for number in numbers)
        reader.tags()
    return frozenset(partitions)


def _partitions() -> Partitions:
    return custom(_read_partitions, _write_partitions, 1, frozenset)


def _read_state(reader: Reader) -> TransactionState:
    number = reader.int8()
    try:
        return TransactionState(number)
    except ValueError:
        raise InvalidRequestError(f"there is no transaction state {number}") from None


def _write_ends(writer: Writer, ends: tuple[MemberEnd, ...]) -> None:
    sets: dict[Partitions, int] = {}
    for end in ends:
        sets.setdefault(end.partitions, len(sets))
    writer.count(len(sets))
    for partitions in sets:
        _write_partitions(writer, partitions)
    writer.count(len(ends))
    for end in ends:
        writer.int64(end.producer_id)
        writer.int16(end.epoch)
        writer.boolean(end.commits)
        writer.int32(sets[end.partitions])


def _read_ends(reader: Reader) -> tuple[MemberEnd, ...]:
    sets = reader.array(1, lambda: _read_partitions(reader))

    def read_end() -> MemberEnd:
        producer_id, epoch, commits = reader.int64(), reader.int16(), reader.boolean()
        index = reader.int32()
        if not 0 <= index < len(sets):
            raise InvalidRequestError(f"there is no set of partitions {index}")
        if producer_id < 0 or epoch < 0:
            raise InvalidRequestError(f"no member has producer id {producer_id}, epoch {epoch}")
        return MemberEnd(producer_id, epoch, commits, sets[index])

    ends = tuple(reader.array(15, read_end))
    if len({end.producer_id for end in ends}) < len(ends):
        raise InvalidRequestError("a producer id ends twice")
    return ends


def _write_origins(writer: Writer, origins: Mapping[TopicPartition, Origin]) -> None:
    topics = by_topic(dict(sorted(origins.items())))
    writer.count(len(topics))
    for topic, rows in topics.items():
        writer.string(topic)
        writer.count(len(rows))
        for partition, origin in rows:
            writer.int32(partition)
            writer.int64(origin.offset)
            writer.int64(origin.clock)


def _read_origins(reader: Reader) -> dict[TopicPartition, Origin]:
    origins: dict[TopicPartition, Origin] = {}
    for _ in range(reader.count(2)):
        topic = reader.name()
        for _ in range(reader.count(20)):
            source = TopicPartition(topic, reader.int32())
            origins[source] = origin = Origin(reader.int64(), reader.int64())
            if not 0 <= origin.clock <= ORIGIN_CLOCK_MAX:
                raise InvalidRequestError(f"no sink's clock shows {origin.clock}")
    return origins


def _write_intervals(writer: Writer, intervals: tuple[NumberInterval, ...]) -> None:
    owners: dict[str, int] = {}
    for interval in intervals:
        owners.setdefault(interval.owner, len(owners))
    writer.count(len(owners))
    for owner in owners:
        writer.string(owner)
    writer.count(len(intervals))
    for interval in intervals:
        writer.int64(interval.first)
        writer.int64(interval.last)
        writer.int32(owners[interval.owner])


def _read_intervals(reader: Reader) -> tuple[NumberInterval, ...]:
    owners = reader.array(1, reader.string)
    intervals: list[NumberInterval] = []
    for _ in range(reader.count(20)):
        first, last, index = reader.int64(), reader.int64(), reader.int32()
        if not 0 <= index < len(owners):
            raise InvalidRequestError(f"there is no owner {index}")
        if not (intervals[-1].last if intervals else -1) < first <= last:
            raise InvalidRequestError(f"numbers {first} to {last} are not behind those before")
        intervals.append(NumberInterval(first, last, owners[index]))
    return tuple(intervals)


# --- tagged values that are their bytes alone ---


def _rest(reader: Reader) -> bytes:
    value = bytes(reader.data[reader.position :])
    reader.position = reader.end
    return value


def _write_text(writer: Writer, value: str) -> None:
    writer.data += value.encode()


def _read_uuids(reader: Reader) -> tuple[UUID, ...]:
    value = _rest(reader)
    if len(value) % _UUID_BYTES:
        raise InvalidRequestError(f"{len(value)} bytes under a tag are no uuids")
    places = range(0, len(value), _UUID_BYTES)
    return tuple(UUID(bytes=value[at : at + _UUID_BYTES]) for at in places)


def _write_uuids(writer: Writer, value: tuple[UUID, ...]) -> None:
    writer.data += b"".join(each.bytes for each in value)


def _read_run(reader: Reader) -> UUID | None:
    return next(iter(_read_uuids(reader)), None)


def _write_run(writer: Writer, value: UUID | None) -> None:
    _write_uuids(writer, (value or _NO_WRITE,))


def _read_claim(reader: Reader) -> NumberClaim:
    micro_batch, attempt, write = reader.int64(), reader.uuid(), reader.uuid()
    return NumberClaim(micro_batch, attempt, None if write == _NO_WRITE else write)


def _write_claim(writer: Writer, value: NumberClaim | None) -> None:
    assert value is not None, "it would be left out"
    writer.int64(value.micro_batch)
    writer.uuid(value.attempt)
    writer.uuid(value.write or _NO_WRITE)


# --- keys and values ---

lay_out(
    TransactionRecord,
    producer_id=int64(),
    producer_epoch=int16(),
    timeout_ms=int32(),
    state=custom(_read_state, Writer.int8, 1, lambda: TransactionState.EMPTY),
    partitions=_partitions(),
    last_update_ms=int64(),
    start_ms=int64(),
    previous_producer_id=int64(tag=0, default=NO_PRODUCER_ID),
    next_producer_id=int64(tag=1, default=NO_PRODUCER_ID),
    client_version=int16(tag=2),
)
lay_out(
    MemberRecord,
    sink=name(),
    query=name(),
    batch=int64(),
    epoch=int16(),
    timeout_ms=int32(),
    origin_clock=int64(),
    aborting=boolean(),
    partitions=_partitions(),
)
lay_out(
    LedgerRecord,
    last=int64(),
    ends=custom(_read_ends, _write_ends, 2, tuple),
    origins=custom(_read_origins, _write_origins, 1, dict),
    once_ms=int64(tag=0, default=NO_TIME),
    owner=custom(lambda reader: _rest(reader).decode(), _write_text, 0, str, tag=1),
    run=custom(_read_run, _write_run, 0, lambda: None, tag=2),
    rows=int64(tag=3, default=NO_ROWS),
    runs=custom(_read_uuids, _write_uuids, 0, tuple, tag=4),
    winner=int64(tag=5, default=NO_PRODUCER_ID),
    claim=custom(_read_claim, _write_claim, 0, lambda: None, tag=6),
)
lay_out(NumbersRecord, intervals=custom(_read_intervals, _write_intervals, 2, tuple))

lay_out(TransactionalIdKey, transactional_id=name())
lay_out(MemberKey, producer_id=int64())
lay_out(LedgerKey, sink=name(), query=name())
lay_out(NumbersKey, sink=name(), part=name())

_VALUES: dict[type[StateKey], tuple[type[StateRecord], int]] = {
    TransactionalIdKey: (TransactionRecord, 1),
    MemberKey: (MemberRecord, 0),
    LedgerKey: (LedgerRecord, 0),
    NumbersKey: (NumbersRecord, 0),
}
"""The record under each kind of key, and the newest version of its value."""

_WRITTEN = dict(_VALUES.values())

FIELDS: StateFields[StateKey] = StateFields(
    "transaction state log",
    {
        TRANSACTION_KEY: TransactionalIdKey,
        MEMBER_KEY: MemberKey,
        LEDGER_KEY: LedgerKey,
        NUMBERS_KEY: NumbersKey,
    },
)
encode_key = FIELDS.encode_key
decode_key = FIELDS.decode_key


def encode_record(record: StateRecord) -> bytes:
    return FIELDS.encode(_WRITTEN[type(record)], record, flexible=True)


def decode_record(key: StateKey, data: bytes) -> StateRecord:
    """Decode the value under a key of that kind."""
    version = FIELDS.version(data, "value")
    kind, newest = _VALUES[type(key)]
    if not 0 <= version <= newest:
        raise FIELDS.corrupt(f"the value of {key}", f"its version {version} is not known")

    def read(reader: Reader) -> StateRecord:
        record = read_struct(kind, version, reader)
        if isinstance(record, TransactionRecord):
            _check(record)
        return record

    return FIELDS.decoded(f"the value of {key}", data, version == newest, read)


def _check(record: TransactionRecord) -> None:
    producer_id, epoch, state = record.producer_id, record.producer_epoch, record.state
    if producer_id < 0 or record.timeout_ms < 0:
        raise InvalidRequestError(f"no producer has id {producer_id} and {record.timeout_ms} ms")
    if epoch < 0 or (epoch == MAX_PRODUCER_EPOCH and state is TransactionState.ONGOING):
        raise InvalidRequestError(f"no producer can have epoch {epoch} in state {state.name}")
