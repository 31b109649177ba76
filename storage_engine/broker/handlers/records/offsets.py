"""ListOffsets: earliest, latest, newest by time, or the first offset at or after a timestamp.

A consumer gets no offset above the high watermark, one with read_committed none above the last
stable offset. A fresh leader whose high watermark has not reached the start of its epoch answers
with an error, so that no consumer goes back (KIP-207). Source: R-LOG11, KIP-98.

OffsetForLeaderEpoch: where a leader epoch ends in the leader's log. Source: KIP-101, KIP-279,
R-REP8.

DeleteRecords: moves the start of partitions led here.

Only committed records can be deleted (up to the high watermark); each partition succeeds or fails
by itself; the new start is on disk before anyone learns of it. Source: R-LOG9, KIP-107.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.log_starts import LogStarts
from storage_engine.broker.replicas.purgatory import DelayedAnswer
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.delayed_produce import AwaitedDeletion
from storage_engine.broker.requests.fetch_reads import READ_COMMITTED
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError, LogStorageError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.log.segments.time_search import Searching
from storage_engine.net.client_log import ClientLog
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
from storage_engine.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from storage_engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
FIRST_VERSION_WITH = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def list_offsets(
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
) -> Searching[ListOffsetsPartitionResponse]:
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
) -> Searching[tuple[int, int]]:
    """Find (offset, timestamp); (-1, -1) where no record is young enough, and for remote storage:
    there is none, so that all of the log is local."""
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


_AskedPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Answer = _TopicResult.EpochEndOffset


def offset_for_leader_epoch(
    replicas: ReplicaManager,
    call: ApiCall[OffsetForLeaderEpochResponse],
    request: OffsetForLeaderEpochRequest,
) -> Steps:
    topics = []
    for topic in request.topics:
        rows = []
        for item in topic.partitions:
            rows.append(_epoch_answer(replicas, topic.topic, item))
            yield None
        topics.append(_TopicResult(topic=topic.topic, partitions=rows))
        yield None
    call.respond(OffsetForLeaderEpochResponse(topics=topics))


def _epoch_answer(replicas: ReplicaManager, topic: str, item: _AskedPartition) -> _Answer:
    code, epoch, end_offset = 0, -1, -1
    try:
        tp = TopicPartition(topic, item.partition)
        partition = replicas.leader(tp, item.current_leader_epoch)
        epoch, end_offset = partition.log.reads.end_offset_for_epoch(item.leader_epoch)
    except KafkaError as failure:
        code = int(failure.code)
    return _Answer(
        error_code=code, partition=item.partition, leader_epoch=epoch, end_offset=end_offset
    )


log = ClientLog(__name__)

TO_HIGH_WATERMARK = -1

LONGEST_WAIT_MS = 600_000
"""The longest wait for followers, whatever the client's timeout."""

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsHandler:
    """Answers DeleteRecords."""

    replicas: ReplicaManager
    log_starts: LogStarts
    metadata: MetadataCache
    scheduler: Scheduler

    def handle(self, call: ApiCall[DeleteRecordsResponse], request: DeleteRecordsRequest) -> Steps:
        outcomes: dict[tuple[int, int], AwaitedDeletion | KafkaError] = {}
        moved: list[HostedPartition] = []
        named: set[TopicPartition] = set()
        for t, topic in enumerate(request.topics):
            yield None
            for p, item in enumerate(topic.partitions):
                yield None
                tp = TopicPartition(topic.name, item.partition_index)
                try:
                    if tp in named:
                        raise KafkaError(f"{tp} is named twice", ErrorCode.INVALID_REQUEST)
                    named.add(tp)
                    call.check_allowed(ResourceType.TOPIC, tp.topic)
                    outcomes[t, p] = self._delete(tp, item.offset, moved)
                except KafkaError as failure:
                    log.info(tp.topic, "deletion refused partition=%s: %s", tp, failure)
                    outcomes[t, p] = failure.as_outcome()

        def wait(is_kept: bool) -> None:
            if not is_kept:
                unkept = set(moved)
                for place, each in outcomes.items():
                    if isinstance(each, AwaitedDeletion) and each.partition in unkept:
                        outcomes[place] = LogStorageError("where the log starts is not written yet")
            DelayedAnswer(
                [each for each in outcomes.values() if isinstance(each, AwaitedDeletion)],
                timeout_ms=max(0, min(request.timeout_ms, LONGEST_WAIT_MS)),
                scheduler=self.scheduler,
                respond=lambda: call.run(_respond(call, request, outcomes)),
            )

        self.log_starts.keep(moved, wait)

    def _delete(
        self, tp: TopicPartition, offset: int, moved: list[HostedPartition]
    ) -> AwaitedDeletion:
        """Move the start of one partition; it is added to `moved` if the new start must be written.
        Raises KafkaError."""
        partition = self.replicas.leader(tp)
        self.replicas.lease.check()
        if not partition.config.log.deletes_old_segments:
            raise KafkaError(
                f"{tp} has cleanup.policy={partition.config.log.cleanup_policy}: records can "
                "only be deleted where it contains 'delete'",
                ErrorCode.POLICY_VIOLATION,
            )
        if offset == TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise OffsetOutOfRangeError(
                f"only offsets from 0 to the high watermark {partition.high_watermark} can be the "
                f"start, not {offset}",
                log_start_offset=partition.log.log_start_offset,
                log_end_offset=partition.high_watermark,
            )
        try:
            if partition.log.retention.advance_log_start(offset):
                self.log_starts.note(partition)
                partition.follower_watches.note()
            if self.log_starts.is_pending(partition):
                log.info(tp.topic, "records deleted partition=%s log_start_offset=%d", tp, offset)
                # When the new start can't be written, the replica goes offline: it is as if the
                # deletion had not begun.
                moved.append(partition)
        except LogStorageError as failure:
            partition.fail(failure)
            raise
        return AwaitedDeletion(
            partition, required_offset=offset, live=lambda: self.metadata.brokers
        )


def _respond(
    call: ApiCall[DeleteRecordsResponse],
    request: DeleteRecordsRequest,
    outcomes: Mapping[tuple[int, int], AwaitedDeletion | KafkaError],
) -> Steps:
    topics = []
    for t, topic in enumerate(request.topics):
        yield None
        rows = []
        for p, item in enumerate(topic.partitions):
            rows.append(_row(item.partition_index, outcomes[t, p]))
            yield None
        topics.append(_Topic(name=topic.name, partitions=rows))
    call.respond(DeleteRecordsResponse(topics=topics))


def _row(partition: int, outcome: AwaitedDeletion | KafkaError) -> _Partition:
    if isinstance(outcome, KafkaError):
        return _Partition(partition_index=partition, low_watermark=-1, error_code=int(outcome.code))
    assert outcome.code is not None
    return _Partition(
        partition_index=partition,
        low_watermark=outcome.low_watermark,
        error_code=int(outcome.code),
    )
