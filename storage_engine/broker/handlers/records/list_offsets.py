"""ListOffsets: earliest, latest, newest by time, or the first offset at or after a timestamp.

A consumer gets no offset above the high watermark, one with read_committed none above the last
stable offset. A fresh leader whose high watermark has not reached the start of its epoch answers
with an error, so that no consumer goes back (KIP-207). Source: R-LOG11, KIP-98.
"""

from collections.abc import Generator
from typing import Any

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.fetch_reads import READ_COMMITTED
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
FIRST_VERSION_WITH = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle(
    replicas: ReplicaManager, call: ApiCall[ListOffsetsResponse], request: ListOffsetsRequest
) -> Steps:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for wanted in request.partitions:
        key = wanted.topic, wanted.partition
        (twice if key in seen else seen).add(key)
        yield None
    answers: list[ListOffsetsPartitionResponse] = []
    for wanted in request.partitions:
        if (wanted.topic, wanted.partition) in twice:
            # A partition may be named once in a request, as in Kafka.
            code = int(ErrorCode.INVALID_REQUEST)
            answers.append(ListOffsetsPartitionResponse(wanted.topic, wanted.partition, code))
        else:
            answers.append((yield from _answer(replicas, call.version, request, wanted)))
        yield None
    call.respond(ListOffsetsResponse(answers))


def _answer(
    replicas: ReplicaManager,
    version: int,
    request: ListOffsetsRequest,
    wanted: ListOffsetsPartition,
) -> Generator[Any, Any, ListOffsetsPartitionResponse]:
    tp = TopicPartition(wanted.topic, wanted.partition)
    try:
        partition = replicas.leader(tp, wanted.current_leader_epoch)
        epoch = partition.leader_epoch
        offset, timestamp = yield from _look_up(partition, wanted.timestamp, request, version)
        # Another may lead it since the search has begun.
        partition = replicas.leader(tp, epoch)
    except KafkaError as failure:
        return ListOffsetsPartitionResponse(wanted.topic, wanted.partition, int(failure.code))
    return ListOffsetsPartitionResponse(
        wanted.topic, wanted.partition, 0, timestamp, offset, partition.leader_epoch
    )


def _look_up(
    partition: HostedPartition, timestamp: int, request: ListOffsetsRequest, version: int
) -> Generator[Any, Any, tuple[int, int]]:
    """(offset, timestamp); (-1, -1) where no record is young enough, and where remote storage is
    asked about: there is none, so that all of the log is local."""
    log = partition.log
    if timestamp < EARLIEST_TIMESTAMP and version < FIRST_VERSION_WITH.get(timestamp, version + 1):
        raise KafkaError(f"timestamp {timestamp} is not supported", ErrorCode.UNSUPPORTED_VERSION)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return log.log_start_offset, -1
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return -1, -1
    is_follower = request.replica_id >= 0
    if is_follower:
        limit = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        limit = partition.last_stable_offset
    else:
        limit = partition.high_watermark
    leader = partition.leader
    if not is_follower and leader is not None and leader.high_watermark < leader.epoch_start_offset:
        raise KafkaError(
            code=ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    if timestamp == LATEST_TIMESTAMP:
        return limit, -1
    if timestamp == MAX_TIMESTAMP:
        largest = yield from log.reads.search_largest_timestamp(max_offset=limit)
        return (-1, -1) if largest is None else (largest.offset, largest.timestamp_ms)
    found = yield from log.reads.search_timestamp(timestamp, max_offset=limit)
    return (-1, -1) if found is None else (found.offset, found.timestamp_ms)
