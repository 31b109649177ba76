"""DescribeTopicPartitions: topics in the order of their names, as many partitions as one answer may
have, and where the next answer begins. Source: KIP-966.
"""

from collections.abc import Generator
from dataclasses import dataclass
from uuid import UUID

from storage_engine.broker.handlers.administration.metadata import LivePeers, partition_row
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.cluster_for_clients import ClusterForClients
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import INTERNAL_TOPICS, topic_name_problem
from storage_engine.protocol.apis.metadata import MetadataPartition
from storage_engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions."""

    cluster: ClusterForClients
    most_partitions: int
    """Of one answer, whatever the client asks for."""

    def handle(
        self,
        call: ApiCall[DescribeTopicPartitionsResponse],
        request: DescribeTopicPartitionsRequest,
    ) -> None:
        self.cluster.when_known(lambda: call.run(self._respond(call, request)))

    def _respond(
        self,
        call: ApiCall[DescribeTopicPartitionsResponse],
        request: DescribeTopicPartitionsRequest,
    ) -> Steps:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            code = ErrorCode.INVALID_REQUEST
            call.respond(_answer([_without_partitions(t.name, code) for t in request.topics], None))
            return
        names = {topic.name for topic in request.topics} or set(self.cluster.metadata.topics())
        live = LivePeers.of(self.cluster, call.connection.listener_name)
        left = min(self.most_partitions, max(1, request.response_partition_limit))
        rows: list[_Topic] = []
        for name in sorted(names):
            first = 0
            if cursor is not None and name <= cursor.topic_name:
                if name < cursor.topic_name:
                    continue
                first = cursor.partition_index
            if not left:
                # It is for the next answer.
                call.respond(_answer(rows, _Cursor(topic_name=name, partition_index=first)))
                return
            row = yield from self._topic(name, live, first, left)
            rows.append(row)
            left -= len(row.partitions)
            done = first + len(row.partitions)
            if done < len(self.cluster.metadata.partitions(name) or ()) and not left:
                call.respond(_answer(rows, _Cursor(topic_name=name, partition_index=done)))
                return
            yield None
        call.respond(_answer(rows, None))

    def _topic(
        self, name: str, live: LivePeers, first: int, most: int
    ) -> Generator[None, None, _Topic]:
        metadata = self.cluster.metadata
        partitions = metadata.partitions(name)
        if partitions is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_name_problem(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _without_partitions(name, code)
        rows: list[_Partition] = []
        for number in sorted(partitions)[first : first + most]:
            rows.append(_partition(partition_row(partitions[number], live)))
            yield None
        return _Topic(
            name=name,
            error_code=0,
            topic_id=metadata.topic_id(name) or UUID(int=0),
            is_internal=name in INTERNAL_TOPICS,
            partitions=rows,
        )


def _answer(rows: list[_Topic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)


def _without_partitions(name: str, code: ErrorCode) -> _Topic:
    return _Topic(name=name, error_code=int(code), topic_id=UUID(int=0), partitions=[])


def _partition(row: MetadataPartition) -> _Partition:
    return _Partition(
        error_code=row.error_code,
        partition_index=row.partition,
        leader_id=row.leader,
        leader_epoch=row.leader_epoch,
        replica_nodes=list(row.replicas),
        isr_nodes=list(row.isr),
        # Replicas that left the in-sync replicas are not eligible here; clients want a list.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(row.offline_replicas),
    )
