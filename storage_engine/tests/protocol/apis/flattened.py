"""Turns messages of kio into our own, which have flat lists where kio's are nested.

`make_expressible` first bends a random message into one that the flat form can carry: no topic is
repeated.
"""

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from storage_engine.core.ids import topic_id_to_text
from storage_engine.protocol.apis import (
    api_versions,
    current_leaders,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from storage_engine.protocol.apis.wire import NO_TOPIC_ID

METADATA = 3
FETCH = 1


def milliseconds(value: datetime.timedelta) -> int:
    return value // datetime.timedelta(milliseconds=1)


def _timestamp(value: datetime.datetime | None) -> int:
    if value is None:
        return -1
    return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(
        milliseconds=1
    )


def make_expressible(key: int, version: int, kind: str, message: Any) -> Any:
    if key == METADATA and kind == "request":
        return _metadata_request(version, message)
    for name in ("topic_data", "responses", "topics", "forgotten_topics_data"):
        topics = getattr(message, name, None)
        if key <= METADATA and topics and (key, kind) != (METADATA, "response"):
            message = dataclasses.replace(message, **{name: tuple(map(_unique, range(9), topics))})
    if key == FETCH and kind == "response":
        responses = tuple(
            dataclasses.replace(topic, partitions=tuple(map(_with_records, topic.partitions)))
            for topic in message.responses
        )
        message = dataclasses.replace(message, responses=responses)
    return message


def _unique(index: int, topic: Any) -> Any:
    name = "topic" if hasattr(topic, "topic") else "name"
    if hasattr(topic, "topic_id"):
        return dataclasses.replace(topic, topic_id=UUID(int=index + 1))
    return dataclasses.replace(topic, **{name: f"{index}{getattr(topic, name)}"})


def _fetched(topic: Any) -> str:
    """The name, or from version 13 on the id."""
    return topic.topic if hasattr(topic, "topic") else topic_id_to_text(topic.topic_id)


def _with_records(partition: Any) -> Any:
    """No bytes instead of null: both say the same, and we write the one."""
    return dataclasses.replace(partition, records=partition.records or b"")


def _metadata_request(version: int, message: Any) -> Any:
    """Topics are asked for by name, then by id, not by both, and by id only from version 12 on."""
    if not message.topics:
        return message
    topics = list(message.topics)
    if version >= 10:
        topics = [
            dataclasses.replace(topic, name=None if version >= 12 else "n")
            if topic.name is None
            else dataclasses.replace(topic, topic_id=None)
            for topic in topics
        ]
    if version in (10, 11):
        topics = [dataclasses.replace(topic, topic_id=None) for topic in topics]
    topics.sort(key=lambda topic: topic.name is None)
    return dataclasses.replace(message, topics=tuple(topics))


def _produce_request(theirs: Any) -> produce.ProduceRequest:
    partitions = [
        produce.ProducePartition(topic.name, partition.index, partition.records)
        for topic in theirs.topic_data
        for partition in topic.partition_data
    ]
    timeout_ms = milliseconds(theirs.timeout)
    return produce.ProduceRequest(theirs.transactional_id, theirs.acks, timeout_ms, partitions)


def _produce_response(theirs: Any) -> produce.ProduceResponse:
    partitions = [
        produce.ProducePartitionResponse(
            topic.name,
            partition.index,
            partition.error_code,
            partition.base_offset,
            _timestamp(partition.log_append_time),
            getattr(partition, "log_start_offset", -1),
            getattr(partition, "error_message", None),
            tuple(
                (record.batch_index, record.batch_index_error_message)
                for record in getattr(partition, "record_errors", ())
            ),
            current_leader=_current_leader(partition),
        )
        for topic in theirs.responses
        for partition in topic.partition_responses
    ]
    return produce.ProduceResponse(
        partitions, milliseconds(theirs.throttle_time), _leader_nodes(theirs)
    )


def _current_leader(partition: Any) -> current_leaders.CurrentLeader | None:
    named = getattr(partition, "current_leader", None)
    if named is None or (named.leader_id, named.leader_epoch) == (-1, -1):
        return None
    return named.leader_id, named.leader_epoch


def _leader_nodes(theirs: Any) -> Sequence[current_leaders.LeaderNode]:
    """An empty tuple before there are any, a list since."""
    nodes = getattr(theirs, "node_endpoints", None)
    if not nodes:
        return ()
    return [
        current_leaders.LeaderNode(node.node_id, node.host, node.port, node.rack) for node in nodes
    ]


def _fetch_request(theirs: Any) -> fetch.FetchRequest:
    partitions = [
        fetch.FetchPartition(
            _fetched(topic),
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            getattr(partition, "current_leader_epoch", -1),
            getattr(partition, "last_fetched_epoch", -1),
            getattr(partition, "log_start_offset", -1),
        )
        for topic in theirs.topics
        for partition in topic.partitions
    ]
    return fetch.FetchRequest(
        max_wait_ms=milliseconds(theirs.max_wait),
        min_bytes=theirs.min_bytes,
        max_bytes=theirs.max_bytes,
        partitions=partitions,
        replica_id=_replica_state(theirs).replica_id,
        isolation_level=theirs.isolation_level,
        session_id=getattr(theirs, "session_id", 0),
        session_epoch=getattr(theirs, "session_epoch", -1),
        forgotten=[
            (_fetched(topic), list(topic.partitions))
            for topic in getattr(theirs, "forgotten_topics_data", ())
        ],
        rack_id=getattr(theirs, "rack_id", ""),
        replica_epoch=getattr(_replica_state(theirs), "replica_epoch", -1),
    )


def _replica_state(theirs: Any) -> Any:
    """The part that has the follower's id: before version 15, the request itself."""
    return getattr(theirs, "replica_state", theirs)


def _fetch_response(theirs: Any) -> fetch.FetchResponse:
    partitions = [
        _fetch_partition(_fetched(topic), partition)
        for topic in theirs.responses
        for partition in topic.partitions
    ]
    return fetch.FetchResponse(
        partitions,
        getattr(theirs, "error_code", 0),
        getattr(theirs, "session_id", 0),
        milliseconds(theirs.throttle_time),
        _leader_nodes(theirs),
    )


def _fetch_partition(topic: str, theirs: Any) -> fetch.FetchPartitionResponse:
    aborted = theirs.aborted_transactions
    diverging = None
    if hasattr(theirs, "diverging_epoch"):
        diverging = (theirs.diverging_epoch.epoch, theirs.diverging_epoch.end_offset)
    return fetch.FetchPartitionResponse(
        topic,
        theirs.partition_index,
        theirs.error_code,
        theirs.high_watermark,
        theirs.last_stable_offset,
        getattr(theirs, "log_start_offset", -1),
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        getattr(theirs, "preferred_read_replica", -1),
        theirs.records,
        None if diverging == (-1, -1) else diverging,
        _current_leader(theirs),
    )


def _list_offsets_request(theirs: Any) -> list_offsets.ListOffsetsRequest:
    partitions = [
        list_offsets.ListOffsetsPartition(
            topic.name,
            partition.partition_index,
            partition.timestamp,
            getattr(partition, "current_leader_epoch", -1),
        )
        for topic in theirs.topics
        for partition in topic.partitions
    ]
    isolation_level = getattr(theirs, "isolation_level", 0)
    timeout_ms = list_offsets.DEFAULT_TIMEOUT_MS
    if hasattr(theirs, "timeout"):
        timeout_ms = milliseconds(theirs.timeout)
    return list_offsets.ListOffsetsRequest(
        partitions, theirs.replica_id, isolation_level, timeout_ms
    )


def _list_offsets_response(theirs: Any) -> list_offsets.ListOffsetsResponse:
    partitions = [
        list_offsets.ListOffsetsPartitionResponse(
            topic.name,
            partition.partition_index,
            partition.error_code,
            partition.timestamp,
            partition.offset,
            getattr(partition, "leader_epoch", -1),
        )
        for topic in theirs.topics
        for partition in topic.partitions
    ]
    throttle = getattr(theirs, "throttle_time", datetime.timedelta())
    return list_offsets.ListOffsetsResponse(partitions, milliseconds(throttle))


def _metadata_request_of(theirs: Any) -> metadata.MetadataRequest:
    topics = theirs.topics or ()
    asks_for_all = theirs.topics is None or (theirs.__version__ == 0 and not topics)
    return metadata.MetadataRequest(
        topics=None if asks_for_all else [topic.name for topic in topics if topic.name is not None],
        topic_ids=[topic.topic_id or NO_TOPIC_ID for topic in topics if topic.name is None],
        allow_auto_topic_creation=getattr(theirs, "allow_auto_topic_creation", True),
        include_cluster_authorized_operations=getattr(
            theirs, "include_cluster_authorized_operations", False
        ),
        include_topic_authorized_operations=getattr(
            theirs, "include_topic_authorized_operations", False
        ),
    )


def _metadata_response(theirs: Any) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=getattr(broker, "rack", None),
            )
            for broker in theirs.brokers
        ],
        topics=[_metadata_topic(topic) for topic in theirs.topics],
        controller_id=getattr(theirs, "controller_id", -1),
        cluster_id=getattr(theirs, "cluster_id", None),
        throttle_time_ms=milliseconds(getattr(theirs, "throttle_time", datetime.timedelta())),
        cluster_authorized_operations=getattr(theirs, "cluster_authorized_operations", -(2**31)),
    )


def _metadata_topic(theirs: Any) -> metadata.MetadataTopic:
    return metadata.MetadataTopic(
        topic=theirs.name,
        topic_id=getattr(theirs, "topic_id", None) or NO_TOPIC_ID,
        error_code=theirs.error_code,
        is_internal=getattr(theirs, "is_internal", False),
        authorized_operations=getattr(theirs, "topic_authorized_operations", -(2**31)),
        partitions=[
            metadata.MetadataPartition(
                partition=partition.partition_index,
                leader=partition.leader_id,
                replicas=list(partition.replica_nodes),
                isr=list(partition.isr_nodes),
                error_code=partition.error_code,
                leader_epoch=getattr(partition, "leader_epoch", -1),
                offline_replicas=list(getattr(partition, "offline_replicas", ())),
            )
            for partition in theirs.partitions
        ],
    )


def _api_versions_response(theirs: Any) -> api_versions.ApiVersionsResponse:
    return api_versions.ApiVersionsResponse(
        error_code=theirs.error_code,
        api_keys=[
            api_versions.ApiVersion(api.api_key, api.min_version, api.max_version)
            for api in theirs.api_keys
        ],
        throttle_time_ms=milliseconds(getattr(theirs, "throttle_time", datetime.timedelta())),
        supported_features=[
            api_versions.Feature(
                name=feature.name,
                min_version=feature.min_version,
                max_version=feature.max_version,
            )
            for feature in getattr(theirs, "supported_features", ())
        ],
        finalized_features_epoch=getattr(theirs, "finalized_features_epoch", -1),
        finalized_features=[
            api_versions.FinalizedFeature(
                name=feature.name,
                min_version=feature.min_version_level,
                max_version=feature.max_version_level,
            )
            for feature in getattr(theirs, "finalized_features", ())
        ],
    )


FLATTEN: dict[tuple[int, str], Callable[[Any], Any]] = {
    (0, "request"): _produce_request,
    (0, "response"): _produce_response,
    (1, "request"): _fetch_request,
    (1, "response"): _fetch_response,
    (2, "request"): _list_offsets_request,
    (2, "response"): _list_offsets_response,
    (3, "request"): _metadata_request_of,
    (3, "response"): _metadata_response,
    (18, "response"): _api_versions_response,
}
