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

from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import (
    NO_TOPIC_ID,
    Reader,
    Writer,
    decode_leniently,
)

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

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPartition:
    """One partition; leader -1 with LEADER_NOT_AVAILABLE."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    error_code: int = 0
    leader_epoch: int = -1
    offline_replicas: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopic:
    """One topic; `topic` is None only for an unknown id (version 12)."""

    topic: str | None
    partitions: Sequence[MetadataPartition]
    error_code: int = 0
    topic_id: UUID = NO_TOPIC_ID
    is_internal: bool = False
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """Answer to a MetadataRequest; controller -1 when there is none."""

    brokers: Sequence[MetadataBroker]
    topics: Sequence[MetadataTopic]
    controller_id: int = -1
    cluster_id: str | None = None
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = NO_AUTHORIZED_OPERATIONS


def decode_request(version: int, body: memoryview) -> MetadataRequest:
    # librdkafka 2.x writes the null list of "all topics" as four bytes of zero where a flexible
    # version has one, so that three bytes are left over. Kafka lets them pass.
    return decode_leniently(
        f"Metadata request of version {version}",
        body,
        version >= FIRST_FLEXIBLE,
        lambda reader: _read_request(reader, version),
    )


def _read_request(reader: Reader, version: int) -> MetadataRequest:
    names: list[str] = []
    ids: list[UUID] = []
    total = reader.nullable_count(2) if version >= 1 else reader.count(2)
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


def encode_request(version: int, request: MetadataRequest) -> list[Buffer]:
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


def encode_response(version: int, response: MetadataResponse) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    if version >= 3:
        writer.int32(response.throttle_time_ms)
    writer.count(len(response.brokers))
    for broker in response.brokers:
        writer.int32(broker.broker_id)
        writer.string(broker.host)
        writer.int32(broker.port)
        if version >= 1:
            writer.nullable_string(broker.rack)
        writer.tags()
    if version >= 2:
        writer.nullable_string(response.cluster_id)
    if version >= 1:
        writer.int32(response.controller_id)
    writer.count(len(response.topics))
    for topic in response.topics:
        _write_topic(writer, version, topic)
    if 8 <= version <= 10:
        writer.int32(response.cluster_authorized_operations)
    writer.tags()
    return [writer.data]


def _write_topic(writer: Writer, version: int, topic: MetadataTopic) -> None:
    writer.int16(topic.error_code)
    if version >= 12:
        writer.nullable_string(topic.topic)
    else:
        writer.string(topic.topic or "")
    if version >= 10:
        writer.uuid(topic.topic_id)
    if version >= 1:
        writer.boolean(topic.is_internal)
    writer.count(len(topic.partitions))
    for partition in topic.partitions:
        writer.int16(partition.error_code)
        writer.int32(partition.partition)
        writer.int32(partition.leader)
        if version >= 7:
            writer.int32(partition.leader_epoch)
        writer.int32s(partition.replicas)
        writer.int32s(partition.isr)
        if version >= 5:
            writer.int32s(partition.offline_replicas)
        writer.tags()
    if version >= 8:
        writer.int32(topic.authorized_operations)
    writer.tags()


def decode_response(version: int, body: memoryview) -> MetadataResponse:
    return decode_leniently(
        f"Metadata response of version {version}",
        body,
        version >= FIRST_FLEXIBLE,
        lambda reader: _read_response(reader, version),
    )


def _read_response(reader: Reader, version: int) -> MetadataResponse:
    throttle_time_ms = reader.int32() if version >= 3 else 0
    brokers = reader.array(10, lambda: _read_broker(reader, version))
    cluster_id = reader.nullable_string() if version >= 2 else None
    controller_id = reader.int32() if version >= 1 else -1
    topics = reader.array(5, lambda: _read_topic(reader, version))
    operations = reader.int32() if 8 <= version <= 10 else NO_AUTHORIZED_OPERATIONS
    reader.tags()
    return MetadataResponse(
        brokers=brokers,
        topics=topics,
        controller_id=controller_id,
        cluster_id=cluster_id,
        throttle_time_ms=throttle_time_ms,
        cluster_authorized_operations=operations,
    )


def _read_broker(reader: Reader, version: int) -> MetadataBroker:
    broker_id, host, port = reader.int32(), reader.name(), reader.int32()
    rack = reader.nullable_name() if version >= 1 else None
    reader.tags()
    return MetadataBroker(broker_id=broker_id, host=host, port=port, rack=rack)


def _read_topic(reader: Reader, version: int) -> MetadataTopic:
    error_code = reader.int16()
    name = reader.nullable_name() if version >= 12 else reader.name()
    topic_id = reader.uuid() if version >= 10 else NO_TOPIC_ID
    is_internal = reader.boolean() if version >= 1 else False
    partitions = reader.array(12, lambda: _read_partition(reader, version))
    operations = reader.int32() if version >= 8 else NO_AUTHORIZED_OPERATIONS
    reader.tags()
    return MetadataTopic(
        topic=name,
        partitions=partitions,
        error_code=error_code,
        topic_id=topic_id,
        is_internal=is_internal,
        authorized_operations=operations,
    )


def _read_partition(reader: Reader, version: int) -> MetadataPartition:
    error_code, partition, leader = reader.int16(), reader.int32(), reader.int32()
    leader_epoch = reader.int32() if version >= 7 else -1
    replicas, isr = reader.int32s(), reader.int32s()
    offline = reader.int32s() if version >= 5 else []
    reader.tags()
    return MetadataPartition(
        partition=partition,
        leader=leader,
        replicas=replicas,
        isr=isr,
        error_code=error_code,
        leader_epoch=leader_epoch,
        offline_replicas=offline,
    )


API = ApiSpec(
    key=3,
    name="Metadata",
    min_version=0,
    max_version=12,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
