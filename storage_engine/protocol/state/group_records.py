"""Records of `__consumer_offsets`, Kafka's byte for byte: what a group coordinator keeps. Bytes are
trusted no further than they can be read; anything else is a CorruptRecordError.

    key version  fields                                value
    0, 1         group, topic string; partition int32  OffsetCommitValue
    2            group string                          GroupMetadataValue
    3 to 8, 16   those of consumer groups              see `consumer_group_records`

Big endian; key and value begin with their version as int16. Values of keys 0 to 2 are plain up to
version 3, which is written; version 4 is flexible (KIP-482):

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

from dataclasses import replace

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.groups.consumer.records import ConsumerRecordKey
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
from storage_engine.protocol.apis.fields import (
    binary,
    custom,
    int32,
    int64,
    name,
    nullable_name,
    structs,
)
from storage_engine.protocol.apis.struct_codec import lay_out, read_struct
from storage_engine.protocol.apis.wire import Reader, Writer
from storage_engine.protocol.state.consumer_group_records import (
    CONSUMER_KEYS,
    CONSUMER_VALUE,
    encode_consumer_value,
    read_consumer_value,
)
from storage_engine.protocol.state.state_fields import StateFields

OFFSET_KEY = 1
GROUP_KEY = 2

_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3
_NEWEST_VALUE = 4
_FIRST_FLEXIBLE = 4

GENERATION_MAX = 1 << 30
"""The largest generation, far above that of any group, and with room above it for further
rebalances."""


def _write_partition(writer: Writer, tp: TopicPartition) -> None:
    writer.string(tp.topic)
    writer.int32(tp.partition)


lay_out(
    OffsetRecord,
    offset=int64(),
    leader_epoch=int32(3, default=NO_LEADER_EPOCH),
    metadata=name(),
    commit_ms=int64(),
    expire_ms=int64(_OFFSET_VALUE_WITH_EXPIRY, _OFFSET_VALUE_WITH_EXPIRY, default=NO_EXPIRY),
)
lay_out(
    GroupMemberRecord,
    member_id=name(),
    instance_id=nullable_name(3),
    client_id=name(),
    client_host=name(),
    rebalance_timeout_ms=int32(1),
    session_timeout_ms=int32(),
    subscription=binary(),
    assignment=binary(),
)
lay_out(
    GroupRecord,
    protocol_type=name(),
    generation=int32(),
    protocol=nullable_name(),
    leader=nullable_name(),
    state_ms=int64(2, default=NO_TIME),
    members=structs(GroupMemberRecord),
)
lay_out(
    OffsetKey,
    group_id=name(),
    partition=custom(
        lambda reader: TopicPartition(reader.name(), reader.int32()),
        _write_partition,
        6,
        lambda: TopicPartition("", 0),
    ),
)
lay_out(GroupKey, group_id=name())

FIELDS: StateFields[RecordKey] = StateFields(
    "log of group offsets",
    {0: OffsetKey, OFFSET_KEY: OffsetKey, GROUP_KEY: GroupKey, **CONSUMER_KEYS},
)
encode_key = FIELDS.encode_key
decode_key = FIELDS.decode_key


def encode_record(record: Record) -> bytes:
    match record:
        case GroupRecord():
            return FIELDS.encode(_GROUP_VALUE, record, flexible=False)
        case OffsetRecord():
            expires = record.expire_ms != NO_EXPIRY
            version = _OFFSET_VALUE_WITH_EXPIRY if expires else _OFFSET_VALUE
            return FIELDS.encode(version, record, flexible=False)
        case _:
            return encode_consumer_value(record)


def decode_record(key: RecordKey, data: bytes) -> Record:
    """Decode the value under a key of that kind."""
    version = FIELDS.version(data, "value")
    newest = CONSUMER_VALUE if isinstance(key, ConsumerRecordKey) else _NEWEST_VALUE
    if not 0 <= version <= newest:
        raise FIELDS.corrupt(f"the value of {key}", f"its version {version} is not known")

    def read(reader: Reader) -> Record:
        match key:
            case GroupKey():
                return _checked(read_struct(GroupRecord, version, reader), version)
            case OffsetKey():
                return read_struct(OffsetRecord, version, reader)
            case _:
                return read_consumer_value(key, reader)

    is_flexible = version >= _FIRST_FLEXIBLE or isinstance(key, ConsumerRecordKey)
    return FIELDS.decoded(f"the value of {key}", data, is_flexible, read)


def _checked(record: GroupRecord, version: int) -> GroupRecord:
    members = tuple(record.members)
    if version == 0:
        # Members from before KIP-62 have one timeout for both.
        members = tuple(
            member._replace(rebalance_timeout_ms=member.session_timeout_ms) for member in members
        )
    if not 0 <= record.generation <= GENERATION_MAX:
        raise InvalidRequestError(f"no group has generation {record.generation}")
    for kind, ids in (
        ("a member id", [member.member_id for member in members]),
        ("an instance id", [m.instance_id for m in members if m.instance_id is not None]),
    ):
        if len(set(ids)) < len(ids):
            raise InvalidRequestError(f"{kind} occurs twice")
    return replace(record, members=members)
