"""Records of consumer groups in `__consumer_offsets`, Kafka's byte for byte, beside those that
`group_records` has.

    key version  fields                              value
    3            group string                        ConsumerGroupMetadataValue
    4            group string                        ConsumerGroupPartitionMetadataValue, not read
    5            group, member string                ConsumerGroupMemberMetadataValue
    6            group string                        ConsumerGroupTargetAssignmentMetadataValue
    7            group, member string                ConsumerGroupTargetAssignmentMemberValue
    8            group, member string                ConsumerGroupCurrentMemberAssignmentValue
    16           group, pattern string               ConsumerGroupRegularExpressionValue

Big endian; keys are plain. Values are flexible (KIP-482), and all of version 0:

    GroupMetadata        epoch int32; tag 0: metadata_hash int64 (Kafka 4.1+)
    MemberMetadata       instance_id, rack_id nullable string; client_id, client_host string;
                         topics array of string; pattern nullable string; rebalance_timeout_ms
                         int32; assignor nullable string; tag 0: classic nullable struct
    classic              session_timeout_ms int32; protocols array of (name string, metadata bytes)
    TargetMetadata       epoch int32
    TargetMember         assignment
    CurrentAssignment    member_epoch, previous_epoch int32; state int8; assigned,
                         pending_revocation assignment
    RegularExpression    topics array of string; version, resolved_ms int64
    assignment           array of (topic_id uuid, partitions array of int32)

Source: the schemas of Kafka's group coordinator of 4.1; KIP-848.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import TypeVar, assert_never
from uuid import UUID

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import LEAVING_FOR_A_MOMENT_EPOCH
from storage_engine.core.groups.consumer.records import (
    NO_METADATA_HASH,
    ClassicMemberRecord,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    ConsumerRecord,
    ConsumerRecordKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PartitionMetadataKey,
    PartitionMetadataRecord,
    PatternKey,
    PatternRecord,
    TargetKey,
    TargetMemberKey,
    TargetMemberRecord,
    TargetRecord,
)
from storage_engine.protocol.apis.fields import (
    custom,
    int32,
    int64,
    name,
    nullable_name,
    nullable_string,
    nullable_struct,
    string,
)
from storage_engine.protocol.apis.struct_codec import lay_out, read_struct
from storage_engine.protocol.apis.wire import Reader, Writer, uvarint
from storage_engine.protocol.state.state_fields import StateFields

CheckedT = TypeVar("CheckedT")

CONSUMER_KEYS: Mapping[int, type[ConsumerRecordKey]] = {
    3: ConsumerGroupKey,
    4: PartitionMetadataKey,
    5: ConsumerMemberKey,
    6: TargetKey,
    7: TargetMemberKey,
    8: CurrentAssignmentKey,
    16: PatternKey,
}
CONSUMER_VALUE = 0
"""The version of all values."""

EPOCH_MAX = 1 << 30
"""The largest epoch, far above that of any group, and with room above it for further ones."""
_NO_TOPICS = b"\0\0\1\0"
"""A ConsumerGroupPartitionMetadataValue without topics."""


def _read_assignment(reader: Reader) -> Assignment:
    assignment: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.count(_TOPIC_LEAST_BYTES)):
        topic_id = reader.uuid()
        partitions = frozenset(reader.int32s())
        reader.tags()
        if topic_id in assignment:
            raise InvalidRequestError(f"topic {topic_id} occurs twice")
        if partitions and min(partitions) < 0:
            raise InvalidRequestError(f"topic {topic_id} has no partition {min(partitions)}")
        if partitions:
            assignment[topic_id] = partitions
    return assignment


_TOPIC_LEAST_BYTES = 18
"""A topic id, a count and the number of tagged fields."""


def _write_assignment(writer: Writer, assignment: Assignment) -> None:
    writer.count(len(assignment))
    for topic_id in sorted(assignment, key=attrgetter("int")):
        writer.uuid(topic_id)
        writer.int32s(sorted(assignment[topic_id]))
        writer.tags()


def _read_topics(reader: Reader) -> frozenset[str]:
    return frozenset(reader.array(1, reader.name))


def _write_topics(writer: Writer, topics: frozenset[str]) -> None:
    writer.count(len(topics))
    for topic in sorted(topics):
        writer.string(topic)


def _read_protocols(reader: Reader) -> tuple[tuple[str, bytes], ...]:
    protocols = []
    for _ in range(reader.count(3)):
        protocol = reader.name()
        metadata = reader.records()
        if metadata is None:
            raise InvalidRequestError(f"the metadata of protocol {protocol!r} is null")
        reader.tags()
        protocols.append((protocol, bytes(metadata)))
    return tuple(protocols)


def _write_protocols(writer: Writer, protocols: tuple[tuple[str, bytes], ...]) -> None:
    writer.count(len(protocols))
    for protocol, metadata in protocols:
        writer.string(protocol)
        writer.data += uvarint(len(metadata) + 1) + metadata
        writer.tags()


def _read_state(reader: Reader) -> MemberState:
    state = reader.int8()
    return MemberState(state) if state in _STATES else MemberState.UNKNOWN


_STATES = frozenset(MemberState)


def _assignment() -> Assignment:
    return custom(_read_assignment, _write_assignment, 1, dict)


def _topics() -> frozenset[str]:
    return custom(_read_topics, _write_topics, 1, frozenset)


for _group_key in (ConsumerGroupKey, PartitionMetadataKey, TargetKey):
    lay_out(_group_key, group_id=name())
for _member_key in (ConsumerMemberKey, TargetMemberKey, CurrentAssignmentKey):
    lay_out(_member_key, group_id=name(), member_id=string())
lay_out(PatternKey, group_id=name(), pattern=string())
lay_out(
    ConsumerGroupRecord,
    epoch=int32(),
    metadata_hash=int64(default=NO_METADATA_HASH, tag=0),
)
lay_out(
    ClassicMemberRecord,
    session_timeout_ms=int32(),
    protocols=custom(_read_protocols, _write_protocols, 1, tuple),
)
lay_out(
    ConsumerMemberRecord,
    instance_id=nullable_string(),
    rack_id=nullable_name(),
    client_id=name(),
    client_host=name(),
    topics=_topics(),
    pattern=nullable_string(),
    rebalance_timeout_ms=int32(),
    assignor=nullable_name(),
    classic=nullable_struct(ClassicMemberRecord, tag=0),
)
lay_out(TargetRecord, epoch=int32())
lay_out(TargetMemberRecord, assignment=_assignment())
lay_out(
    CurrentAssignmentRecord,
    member_epoch=int32(),
    previous_epoch=int32(),
    state=custom(_read_state, Writer.int8, 1, lambda: MemberState.STABLE),
    assigned=_assignment(),
    pending_revocation=_assignment(),
)
lay_out(PatternRecord, topics=_topics(), version=int64(), resolved_ms=int64())


def encode_consumer_value(record: ConsumerRecord) -> bytes:
    if isinstance(record, PartitionMetadataRecord):
        return _NO_TOPICS
    return StateFields.encode(CONSUMER_VALUE, record, flexible=True)


def read_consumer_value(key: ConsumerRecordKey, reader: Reader) -> ConsumerRecord:
    match key:
        case ConsumerGroupKey():
            group = read_struct(ConsumerGroupRecord, CONSUMER_VALUE, reader)
            return _checked(group, 0, group.epoch)
        case TargetKey():
            target = read_struct(TargetRecord, CONSUMER_VALUE, reader)
            return _checked(target, 0, target.epoch)
        case CurrentAssignmentKey():
            current = read_struct(CurrentAssignmentRecord, CONSUMER_VALUE, reader)
            least = LEAVING_FOR_A_MOMENT_EPOCH
            return _checked(current, least, current.member_epoch, current.previous_epoch)
        case ConsumerMemberKey():
            return read_struct(ConsumerMemberRecord, CONSUMER_VALUE, reader)
        case TargetMemberKey():
            return read_struct(TargetMemberRecord, CONSUMER_VALUE, reader)
        case PatternKey():
            return read_struct(PatternRecord, CONSUMER_VALUE, reader)
        case PartitionMetadataKey():
            reader.position = reader.end
            return PartitionMetadataRecord()
        case _:
            assert_never(key)


def _checked(record: CheckedT, least: int, *epochs: int) -> CheckedT:
    for epoch in epochs:
        if not least <= epoch <= EPOCH_MAX:
            raise InvalidRequestError(f"no group or member has epoch {epoch}")
    return record
