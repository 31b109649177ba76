"""ListOffsets: the first and last offset of a partition, or the first at or after a time (R-LOG11).

Versions: 1 one offset per partition. 2 isolation level. 4 leader epoch. 6 flexible. 7 offset of the
largest timestamp (KIP-734). 8 first offset that is not only in remote storage (KIP-405). 9 last
offset in remote storage (KIP-1005). 10 how long to wait for remote storage (KIP-1075). 11 first
offset that is not in remote storage yet (KIP-1023). Source: Kafka's ListOffsetsRequest.json and
ListOffsetsResponse.json.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.wire import (
    Reader,
    Writer,
    coded,
    group_by_topic,
)

FIRST_FLEXIBLE = 6
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""The timestamp that asks for the offset of the record with the largest timestamp."""
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

FIRST_WITH_TIMEOUT = 10
DEFAULT_TIMEOUT_MS = 30_000


class ListOffsetsPartition(NamedTuple):
    """The request for one partition; `timestamp` is in ms, or one of the constants above."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsRequest(NamedTuple):
    """One request per partition."""

    partitions: Sequence[ListOffsetsPartition]
    replica_id: int = -1
    isolation_level: int = 0
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    """How long to wait for remote storage; there is none here."""


class ListOffsetsPartitionResponse(NamedTuple):
    """`offset` and `timestamp` are -1 when no record is at or after the requested time."""

    topic: str
    partition: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """Answer to a ListOffsetsRequest."""

    partitions: Sequence[ListOffsetsPartitionResponse]
    throttle_time_ms: int = 0


def _read_request(reader: Reader, version: int) -> ListOffsetsRequest:
    replica_id = reader.int32()
    isolation_level = reader.int8() if version >= 2 else 0
    partitions = []
    for _ in range(reader.count(3 if reader.flexible else 6)):
        topic = reader.name()
        for _ in range(reader.count(12)):
            index = reader.int32()
            epoch = reader.int32() if version >= 4 else -1
            partitions.append(ListOffsetsPartition(topic, index, reader.int64(), epoch))
            reader.tags()
        reader.tags()
    timeout_ms = reader.int32() if version >= FIRST_WITH_TIMEOUT else DEFAULT_TIMEOUT_MS
    reader.tags()
    return ListOffsetsRequest(partitions, replica_id, isolation_level, timeout_ms)


def encode_request(version: int, request: ListOffsetsRequest) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    writer.int32(request.replica_id)
    if version >= 2:
        writer.int8(request.isolation_level)
    groups = group_by_topic(request.partitions)
    writer.count(len(groups))
    for topic, partitions in groups:
        writer.string(topic)
        writer.count(len(partitions))
        for partition in partitions:
            writer.int32(partition.partition)
            if version >= 4:
                writer.int32(partition.current_leader_epoch)
            writer.int64(partition.timestamp)
            writer.tags()
        writer.tags()
    if version >= FIRST_WITH_TIMEOUT:
        writer.int32(request.timeout_ms)
    writer.tags()
    return [writer.data]


def encode_response(version: int, response: ListOffsetsResponse) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    if version >= 2:
        writer.int32(response.throttle_time_ms)
    groups = group_by_topic(response.partitions)
    writer.count(len(groups))
    for topic, partitions in groups:
        writer.string(topic)
        writer.count(len(partitions))
        for partition in partitions:
            writer.int32(partition.partition)
            writer.int16(partition.error_code)
            writer.int64(partition.timestamp)
            writer.int64(partition.offset)
            if version >= 4:
                writer.int32(partition.leader_epoch)
            writer.tags()
        writer.tags()
    writer.tags()
    return [writer.data]


def _read_response(reader: Reader, version: int) -> ListOffsetsResponse:
    throttle_time_ms = reader.int32() if version >= 2 else 0
    partitions = []
    for _ in range(reader.count(3 if reader.flexible else 6)):
        topic = reader.name()
        for _ in range(reader.count(22)):
            index, error, timestamp = reader.int32(), reader.int16(), reader.int64()
            offset = reader.int64()
            epoch = reader.int32() if version >= 4 else -1
            partitions.append(
                ListOffsetsPartitionResponse(topic, index, error, timestamp, offset, epoch)
            )
            reader.tags()
        reader.tags()
    reader.tags()
    return ListOffsetsResponse(partitions, throttle_time_ms)


API = coded(2, _read_request, encode_request, _read_response, encode_response)
