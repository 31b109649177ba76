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
from storage_engine.core.ids import TopicPartition
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
from storage_engine.protocol.apis.wire import INT16, INT64, Reader, Writer
from storage_engine.protocol.state.state_fields import StateFields

TRANSACTION_KEY = 0
MEMBER_KEY = 1000
LEDGER_KEY = 1001
NUMBERS_KEY = 1002

_TRANSACTION_VALUE = 1
_OWN_VALUE = 0
_FIRST_FLEXIBLE_TRANSACTION = 1

_TAG_PREVIOUS_PRODUCER_ID = 0
_TAG_NEXT_PRODUCER_ID = 1
_TAG_CLIENT_VERSION = 2
_TAG_ONCE_MS = 0
_TAG_OWNER = 1
_TAG_RUN = 2
_TAG_ROWS = 3
_TAG_RUNS = 4
_TAG_WINNER = 5
_TAG_CLAIM = 6

_UUID_BYTES = 16
_NO_WRITE = UUID(int=0)

ORIGIN_CLOCK_MAX = 1 << 62
"""The largest clock, far above that of any sink, and with room above it for further commits."""

_fields = StateFields("transaction state log")
Partitions = frozenset[TopicPartition]


# --- keys ---


def encode_key(key: StateKey) -> bytes:
    writer = Writer(flexible=False)
    match key:
        case TransactionalIdKey():
            writer.int16(TRANSACTION_KEY)
            writer.string(key.transactional_id)
        case MemberKey():
            writer.int16(MEMBER_KEY)
            writer.int64(key.producer_id)
        case LedgerKey():
            writer.int16(LEDGER_KEY)
            writer.string(key.sink)
            writer.string(key.query)
        case NumbersKey():
            writer.int16(NUMBERS_KEY)
            writer.string(key.sink)
            writer.string(key.part)
    return bytes(writer.data)


def decode_key(data: bytes) -> StateKey | None:
    """Decode a key; None for one of an unknown version, which a later version wrote."""
    version = _fields.version(data, "key")
    if version not in (TRANSACTION_KEY, MEMBER_KEY, LEDGER_KEY, NUMBERS_KEY):
        return None

    def read(reader: Reader) -> StateKey:
        reader.int16()
        if version == TRANSACTION_KEY:
            return TransactionalIdKey(reader.string())
        if version == MEMBER_KEY:
            return MemberKey(reader.int64())
        if version == NUMBERS_KEY:
            return NumbersKey(reader.string(), reader.string())
        return LedgerKey(reader.string(), reader.string())

    return _fields.decoded("a key", data, False, read)


# --- values ---


def encode_record(record: StateRecord) -> bytes:
    writer = Writer(flexible=True)
    match record:
        case TransactionRecord():
            _write_transaction(writer, record)
        case MemberRecord():
            _write_member(writer, record)
        case LedgerRecord():
            _write_ledger(writer, record)
        case NumbersRecord():
            _write_numbers(writer, record)
    return bytes(writer.data)


def decode_record(key: StateKey, data: bytes) -> StateRecord:
    """Decode the value under a key of that kind."""
    version = _fields.version(data, "value")
    newest = _TRANSACTION_VALUE if isinstance(key, TransactionalIdKey) else _OWN_VALUE
    if not 0 <= version <= newest:
        raise _fields.corrupt(f"the value of {key}", f"its version {version} is not known")

    def read(reader: Reader) -> StateRecord:
        reader.int16()
        if isinstance(key, TransactionalIdKey):
            return _read_transaction(reader)
        if isinstance(key, NumbersKey):
            return _read_numbers(reader)
        return _read_member(reader) if isinstance(key, MemberKey) else _read_ledger(reader)

    flexible = newest == _OWN_VALUE or version >= _FIRST_FLEXIBLE_TRANSACTION
    return _fields.decoded(f"the value of {key}", data, flexible, read)


def _write_transaction(writer: Writer, record: TransactionRecord) -> None:
    writer.int16(_TRANSACTION_VALUE)
    writer.int64(record.producer_id)
    writer.int16(record.producer_epoch)
    writer.int32(record.timeout_ms)
    writer.int8(record.state)
    _write_partitions(writer, record.partitions)
    writer.int64(record.last_update_ms)
    writer.int64(record.start_ms)
    tags = []
    if record.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_TAG_PREVIOUS_PRODUCER_ID, INT64.pack(record.previous_producer_id)))
    if record.next_producer_id != NO_PRODUCER_ID:
        tags.append((_TAG_NEXT_PRODUCER_ID, INT64.pack(record.next_producer_id)))
    if record.client_version:
        tags.append((_TAG_CLIENT_VERSION, INT16.pack(record.client_version)))
    writer.tags(tags)


def _read_transaction(reader: Reader) -> TransactionRecord:
    producer_id, epoch = reader.int64(), reader.int16()
    timeout_ms = reader.int32()
    state = _state(reader.int8())
    partitions = _read_partitions(reader)
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tags()
    if producer_id < 0 or timeout_ms < 0:
        raise InvalidRequestError(f"no producer has id {producer_id} and {timeout_ms} ms")
    if epoch < 0 or (epoch == MAX_PRODUCER_EPOCH and state is TransactionState.ONGOING):
        raise InvalidRequestError(f"no producer can have epoch {epoch} in state {state.name}")
    return TransactionRecord(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_tagged_int64(tags, _TAG_PREVIOUS_PRODUCER_ID),
        next_producer_id=_tagged_int64(tags, _TAG_NEXT_PRODUCER_ID),
        client_version=_tagged_int16(tags, _TAG_CLIENT_VERSION),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise InvalidRequestError(f"there is no transaction state {number}") from None


def _tagged_int64(
    tags: Mapping[int, memoryview], tag: int, *, default: int = NO_PRODUCER_ID
) -> int:
    value = tags.get(tag)
    return default if value is None else Reader(value, flexible=True).int64()


def _tagged_text(tags: Mapping[int, memoryview], tag: int) -> str:
    value = tags.get(tag, b"")
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise InvalidRequestError(f"the text under tag {tag} is no UTF-8") from None


def _tagged_uuids(tags: Mapping[int, memoryview], tag: int) -> tuple[UUID, ...]:
    value = bytes(tags.get(tag, b""))
    if len(value) % _UUID_BYTES:
        raise InvalidRequestError(f"{len(value)} bytes under tag {tag} are no uuids")
    places = range(0, len(value), _UUID_BYTES)
    return tuple(UUID(bytes=value[at : at + _UUID_BYTES]) for at in places)


def _tagged_int16(tags: Mapping[int, memoryview], tag: int) -> int:
    value = tags.get(tag)
    return 0 if value is None else int(INT16.unpack(value)[0])


def _write_member(writer: Writer, record: MemberRecord) -> None:
    writer.int16(_OWN_VALUE)
    writer.string(record.sink)
    writer.string(record.query)
    writer.int64(record.batch)
    writer.int16(record.epoch)
    writer.int32(record.timeout_ms)
    writer.int64(record.origin_clock)
    writer.boolean(record.aborting)
    _write_partitions(writer, record.partitions)
    writer.tags()


def _read_member(reader: Reader) -> MemberRecord:
    record = MemberRecord(
        sink=reader.string(),
        query=reader.string(),
        batch=reader.int64(),
        epoch=reader.int16(),
        timeout_ms=reader.int32(),
        origin_clock=reader.int64(),
        aborting=reader.boolean(),
        partitions=_read_partitions(reader),
    )
    reader.tags()
    return record


def _write_ledger(writer: Writer, record: LedgerRecord) -> None:
    sets: dict[Partitions, int] = {}
    for end in record.ends:
        sets.setdefault(end.partitions, len(sets))
    writer.int16(_OWN_VALUE)
    writer.int64(record.last)
    writer.count(len(sets))
    for partitions in sets:
        _write_partitions(writer, partitions)
    writer.count(len(record.ends))
    for end in record.ends:
        writer.int64(end.producer_id)
        writer.int16(end.epoch)
        writer.boolean(end.commits)
        writer.int32(sets[end.partitions])
    by_topic: dict[str, list[tuple[int, Origin]]] = {}
    for source, origin in sorted(record.origins.items()):
        by_topic.setdefault(source.topic, []).append((source.partition, origin))
    writer.count(len(by_topic))
    for topic, origins in by_topic.items():
        writer.string(topic)
        writer.count(len(origins))
        for partition, origin in origins:
            writer.int32(partition)
            writer.int64(origin.offset)
            writer.int64(origin.clock)
    writer.tags(_ledger_tags(record))


def _ledger_tags(record: LedgerRecord) -> list[tuple[int, bytes]]:
    tags: list[tuple[int, bytes]] = []
    if record.once_ms != NO_TIME:
        tags.append((_TAG_ONCE_MS, INT64.pack(record.once_ms)))
    if record.owner:
        tags.append((_TAG_OWNER, record.owner.encode()))
    if record.run is not None:
        tags.append((_TAG_RUN, record.run.bytes))
    if record.rows != NO_ROWS:
        tags.append((_TAG_ROWS, INT64.pack(record.rows)))
    if record.runs:
        tags.append((_TAG_RUNS, b"".join(run.bytes for run in record.runs)))
    if record.winner != NO_PRODUCER_ID:
        tags.append((_TAG_WINNER, INT64.pack(record.winner)))
    if record.claim is not None:
        tags.append((_TAG_CLAIM, _claim_bytes(record.claim)))
    return tags


def _read_ledger(reader: Reader) -> LedgerRecord:
    last = reader.int64()
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
    origins: dict[TopicPartition, Origin] = {}
    for _ in range(reader.count(2)):
        topic = reader.name()
        for _ in range(reader.count(20)):
            source = TopicPartition(topic, reader.int32())
            origins[source] = origin = Origin(reader.int64(), reader.int64())
            if not 0 <= origin.clock <= ORIGIN_CLOCK_MAX:
                raise InvalidRequestError(f"no sink's clock shows {origin.clock}")
    tags = reader.tags()
    runs = _tagged_uuids(tags, _TAG_RUN)
    return LedgerRecord(
        last=last,
        ends=ends,
        origins=origins,
        once_ms=_tagged_int64(tags, _TAG_ONCE_MS, default=NO_TIME),
        owner=_tagged_text(tags, _TAG_OWNER),
        run=runs[0] if runs else None,
        rows=_tagged_int64(tags, _TAG_ROWS, default=NO_ROWS),
        winner=_tagged_int64(tags, _TAG_WINNER),
        claim=_tagged_claim(tags),
        runs=_tagged_uuids(tags, _TAG_RUNS),
    )


def _claim_bytes(claim: NumberClaim) -> bytes:
    write = claim.write or _NO_WRITE
    return INT64.pack(claim.micro_batch) + claim.attempt.bytes + write.bytes


def _tagged_claim(tags: Mapping[int, memoryview]) -> NumberClaim | None:
    value = bytes(tags.get(_TAG_CLAIM, b""))
    if not value:
        return None
    if len(value) != INT64.size + 2 * _UUID_BYTES:
        raise InvalidRequestError(f"{len(value)} bytes are no claim")
    (micro_batch,) = INT64.unpack_from(value)
    attempt, write = (
        UUID(bytes=value[at : at + _UUID_BYTES]) for at in (INT64.size, INT64.size + _UUID_BYTES)
    )
    return NumberClaim(micro_batch, attempt, None if write == _NO_WRITE else write)


def _write_numbers(writer: Writer, record: NumbersRecord) -> None:
    owners: dict[str, int] = {}
    for interval in record.intervals:
        owners.setdefault(interval.owner, len(owners))
    writer.int16(_OWN_VALUE)
    writer.count(len(owners))
    for owner in owners:
        writer.string(owner)
    writer.count(len(record.intervals))
    for interval in record.intervals:
        writer.int64(interval.first)
        writer.int64(interval.last)
        writer.int32(owners[interval.owner])
    writer.tags()


def _read_numbers(reader: Reader) -> NumbersRecord:
    owners = reader.array(1, reader.string)
    intervals: list[NumberInterval] = []
    for _ in range(reader.count(20)):
        first, last, index = reader.int64(), reader.int64(), reader.int32()
        if not 0 <= index < len(owners):
            raise InvalidRequestError(f"there is no owner {index}")
        if not (intervals[-1].last if intervals else -1) < first <= last:
            raise InvalidRequestError(f"numbers {first} to {last} are not behind those before")
        intervals.append(NumberInterval(first, last, owners[index]))
    reader.tags()
    return NumbersRecord(intervals=tuple(intervals))


def _write_partitions(writer: Writer, partitions: Partitions) -> None:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    writer.count(len(by_topic))
    for topic, numbers in by_topic.items():
        writer.string(topic)
        writer.int32s(numbers)
        writer.tags()


def _read_partitions(reader: Reader) -> Partitions:
    """Read partitions; Kafka's null is an empty set."""
    partitions: list[TopicPartition] = []
    for _ in range(max(0, reader.nullable_count(2))):
        topic = reader.name()
        numbers = reader.int32s()
        if any(number < 0 for number in numbers):
            raise InvalidRequestError(f"topic {topic} has no partition {min(numbers)}")
        partitions.extend(TopicPartition(topic, number) for number in numbers)
        reader.tags()
    return frozenset(partitions)
