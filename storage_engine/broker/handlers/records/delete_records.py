"""DeleteRecords: moves the start of partitions led here.

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
from storage_engine.broker.requests.delayed_delete_records import AwaitedDeletion
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Scheduler
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

log = ClientLog(__name__)

TO_HIGH_WATERMARK = -1

LONGEST_WAIT_MS = 600_000
"""The followers are waited for no longer, whatever the client asks for."""

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
        """Move the start of one partition; it is added to `moved` when that must be written.

        Raises KafkaError.
        """
        partition = self.replicas.leader(tp)
        self.replicas.lease.check()
        if not partition.config.log.deletes_old_segments:
            raise KafkaError(
                f"{tp} has cleanup.policy={partition.config.log.cleanup_policy}: only where it has "
                "'delete' can records be deleted by offset",
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
