"""Records of `__consumer_offsets`, Kafka's byte for byte: what a group coordinator keeps. Bytes are
trusted no further than they can be read; anything else is a CorruptRecordError.

    key version  fields                                value
    0, 1         group, topic string; partition int32  OffsetCommitValue
    2            group string                          GroupMetadataValue

Big endian; key and value begin with their version as int16. Up to version 3, which is written, they
are plain; version 4 is flexible (KIP-482):

    OffsetCommitValue    offset int64; leader_epoch int32 (3+); metadata string; commit_ms int64;
                         expire_ms int64 (1, written when a client chose it)
    GroupMetadataValue   protocol_type string; generation int32; protocol, leader nullable string;
                         state_ms int64 (2+); array of members
    member               member_id string; instance_id nullable string (3+); client_id, client_host
                         string; rebalance_timeout_ms int32 (1+); session_timeout_ms int32;
                         subscription, assignment bytes

Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json and
GroupMetadataValue.json.
"""

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.groups.records import (
    NO_EXPIRY,
    NO_LEADER_EPOCH,
    NO_TIME,
    GroupKey,
    GroupMemberRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    Record,
    RecordKey,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.wire import Reader, Writer
from storage_engine.protocol.state.state_fields import StateFields

OFFSET_KEY = 1
GROUP_KEY = 2

_OFFSET_KEYS = (0, 1)
_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3
_NEWEST_VALUE = 4
_FIRST_FLEXIBLE = 4

GENERATION_MAX = 1 << 30
"""The largest generation, far above that of any group, and with room above it for further
rebalances."""

_fields = StateFields("log of group offsets")


# --- keys ---


def encode_key(key: RecordKey) -> bytes:
    writer = Writer(flexible=False)
    match key:
        case OffsetKey():
            writer.int16(OFFSET_KEY)
            writer.string(key.group_id)
            writer.string(key.partition.topic)
            writer.int32(key.partition.partition)
        case GroupKey():
            writer.int16(GROUP_KEY)
            writer.string(key.group_id)
    return bytes(writer.data)


def decode_key(data: bytes) -> RecordKey | None:
    """Decode a key; None for one of an unknown version, which a later version wrote."""
    version = _fields.version(data, "key")
    if version not in (*_OFFSET_KEYS, GROUP_KEY):
        return None

    def read(reader: Reader) -> RecordKey:
        reader.int16()
        group_id = reader.name()
        if version == GROUP_KEY:
            return GroupKey(group_id)
        return OffsetKey(group_id, TopicPartition(reader.name(), reader.int32()))

    return _fields.decoded("a key", data, False, read)


# --- values ---


def encode_record(record: Record) -> bytes:
    writer = Writer(flexible=False)
    match record:
        case OffsetRecord():
            _write_offset(writer, record)
        case GroupRecord():
            _write_group(writer, record)
    return bytes(writer.data)


def decode_record(key: RecordKey, data: bytes) -> Record:
    """Decode the value under a key of that kind."""
    version = _fields.version(data, "value")
    if not 0 <= version <= _NEWEST_VALUE:
        raise _fields.corrupt(f"the value of {key}", f"its version {version} is not known")

    def read(reader: Reader) -> Record:
        reader.int16()
        record: Record
        if isinstance(key, GroupKey):
            record = _read_group(reader, version)
        else:
            record = _read_offset(reader, version)
        reader.tags()
        return record

    return _fields.decoded(f"the value of {key}", data, version >= _FIRST_FLEXIBLE, read)


def _write_offset(writer: Writer, record: OffsetRecord) -> None:
    expires = record.expire_ms != NO_EXPIRY
    writer.int16(_OFFSET_VALUE_WITH_EXPIRY if expires else _OFFSET_VALUE)
    writer.int64(record.offset)
    if not expires:
        writer.int32(record.leader_epoch)
    writer.string(record.metadata)
    writer.int64(record.commit_ms)
    if expires:
        writer.int64(record.expire_ms)


def _read_offset(reader: Reader, version: int) -> OffsetRecord:
    return OffsetRecord(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else NO_LEADER_EPOCH,
        metadata=reader.string(),
        commit_ms=reader.int64(),
        expire_ms=reader.int64() if version == _OFFSET_VALUE_WITH_EXPIRY else NO_EXPIRY,
    )


def _write_group(writer: Writer, record: GroupRecord) -> None:
    writer.int16(_GROUP_VALUE)
    writer.string(record.protocol_type)
    writer.int32(record.generation)
    writer.nullable_string(record.protocol)
    writer.nullable_string(record.leader)
    writer.int64(record.state_ms)
    writer.count(len(record.members))
    for member in record.members:
        writer.string(member.member_id)
        writer.nullable_string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        for data in (member.subscription, member.assignment):
            writer.int32(len(data))
            writer.data += data


def _read_group(reader: Reader, version: int) -> GroupRecord:
    record = GroupRecord(
        protocol_type=reader.string(),
        generation=reader.int32(),
        protocol=reader.nullable_string(),
        leader=reader.nullable_string(),
        state_ms=reader.int64() if version >= 2 else NO_TIME,
        members=tuple(reader.array(10, lambda: _read_member(reader, version))),
    )
    if not 0 <= record.generation <= GENERATION_MAX:
        raise InvalidRequestError(f"no group has generation {record.generation}")
    for kind, ids in (
        ("a member id", [member.member_id for member in record.members]),
        ("an instance id", [m.instance_id for m in record.members if m.instance_id is not None]),
    ):
        if len(set(ids)) < len(ids):
            raise InvalidRequestError(f"{kind} occurs twice")
    return record


def _read_member(reader: Reader, version: int) -> GroupMemberRecord:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    member = GroupMemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Members from before KIP-62 have one timeout for both.
        rebalance_timeout_ms=(
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms
        ),
        session_timeout_ms=session_timeout_ms,
        subscription=bytes(reader.records() or b""),
        assignment=bytes(reader.records() or b""),
    )
    reader.tags()
    return member
