"""Metadata: brokers, controller, topics and the leader, replicas and ISR of each partition.

Versions: 0 an empty list asks for all topics; 1+ null does, and an empty list for none. 1 rack,
controller, internal topics. 2 cluster id. 3 throttle time. 4 auto creation. 5 offline replicas. 7
leader epoch. 8 authorized operations (the cluster's until 10). 9 flexible. 10 topic ids. 12 topics
asked for by id alone.

A field that a version does not carry has its default here. Source: Kafka's MetadataRequest.json and
MetadataResponse.json; KIP-516 for topic ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    name,
    nullable_name,
    nullable_string,
    structs,
    uuid,
)
from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.struct_codec import encoder_of, reader_of
from storage_engine.protocol.apis.wire import NO_TOPIC_ID, Reader, Writer, coded

FIRST_FLEXIBLE = 9
NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The value for authorized operations that were not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """`topics` None asks for all topics, an empty list for none."""

    topics: Sequence[str] | None = None
    topic_ids: Sequence[UUID] = ()
    """Topics that are requested by id alone (version 12)."""
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBroker:
    """A live broker, and the address for its clients."""

    broker_id: int = int32()
    host: str = name()
    port: int = int32()
    rack: str | None = nullable_name(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPartition:
    """One partition; leader -1 with LEADER_NOT_AVAILABLE."""

    error_code: int = int16()
    partition: int = int32()
    leader: int = int32()
    leader_epoch: int = int32(7, default=-1)
    replicas: Sequence[int] = int32s()
    isr: Sequence[int] = int32s()
    offline_replicas: Sequence[int] = int32s(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopic:
    """One topic; `topic` is None only for an unknown id (version 12)."""

    error_code: int = int16()
    topic: str | None = nullable_name(null_from=12)
    topic_id: UUID = uuid(10)
    is_internal: bool = boolean(1)
    partitions: Sequence[MetadataPartition] = structs(MetadataPartition)
    authorized_operations: int = int32(8, default=NO_AUTHORIZED_OPERATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """Answer to a MetadataRequest; controller -1 when there is none."""

    throttle_time_ms: int = int32(3)
    brokers: Sequence[MetadataBroker] = structs(MetadataBroker)
    cluster_id: str | None = nullable_string(2, default=None)
    controller_id: int = int32(1, default=-1)
    topics: Sequence[MetadataTopic] = structs(MetadataTopic)
    cluster_authorized_operations: int = int32(8, 10, default=NO_AUTHORIZED_OPERATIONS)


def _read_request(reader: Reader, version: int) -> MetadataRequest:
    names: list[str] = []
    ids: list[UUID] = []
    total = reader.count(2, -1 if version >= 1 else 0)
    for _ in range(total):
        topic_id = reader.uuid() if version >= 10 else NO_TOPIC_ID
        name = reader.nullable_name() if version >= 10 else reader.name()
        reader.tags()
        if name is None:
            ids.append(topic_id)
        else:
            names.append(name)
    all_topics = total == -1 or (version == 0 and total == 0)
    allow = reader.boolean() if version >= 4 else True
    cluster_operations = reader.boolean() if 8 <= version <= 10 else False
    topic_operations = reader.boolean() if version >= 8 else False
    reader.tags()
    return MetadataRequest(
        topics=None if all_topics else names,
        topic_ids=ids,
        allow_auto_topic_creation=allow,
        include_cluster_authorized_operations=cluster_operations,
        include_topic_authorized_operations=topic_operations,
    )


def _encode_request(version: int, request: MetadataRequest) -> list[Buffer]:
    """Encode a request. ValueError for one that `version` can't express: no topics before 1, topics
    by id before 12."""
    if request.topic_ids and version < 12:
        raise ValueError(f"Metadata {version} can't ask for topics by id")
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    if request.topics is None:
        writer.count(0 if version == 0 else -1)
    elif version == 0 and not request.topics:
        raise ValueError("Metadata 0 can't ask for no topics")
    else:
        writer.count(len(request.topics) + len(request.topic_ids))
        for name in request.topics:
            if version >= 10:
                writer.uuid(NO_TOPIC_ID)
            writer.string(name)
            writer.tags()
        for topic_id in request.topic_ids:
            writer.uuid(topic_id)
            writer.nullable_string(None)
            writer.tags()
    if version >= 4:
        writer.boolean(request.allow_auto_topic_creation)
    if 8 <= version <= 10:
        writer.boolean(request.include_cluster_authorized_operations)
    if version >= 8:
        writer.boolean(request.include_topic_authorized_operations)
    writer.tags()
    return [writer.data]


API = coded(
    3,
    _read_request,
    _encode_request,
    reader_of(MetadataResponse),
    encoder_of(MetadataResponse, FIRST_FLEXIBLE),
    # librdkafka 2.x writes the null list of "all topics" as four bytes of zero where a flexible
    # version has one, so that three bytes are left over. Kafka lets them pass.
    is_lenient=True,
)
