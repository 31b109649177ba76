"""Asks the controller for reassignments and elections of leaders.

Each partition succeeds or is refused by itself. The requests are idempotent, so that they are sent
again after a lost answer. Source: R-TOOL3, R-TOOL4; KIP-455, KIP-460.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from storage_engine.client.admin.broker_requests import CodedT
from storage_engine.client.admin.topics import controller_of, pause
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import ApiSpec, Req
from storage_engine.protocol.messages.alter_partition_reassignments import (
    API as ALTER_PARTITION_REASSIGNMENTS,
)
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.elect_leaders import API as ELECT_LEADERS
from storage_engine.protocol.messages.elect_leaders import ElectLeadersRequest
from storage_engine.protocol.messages.list_partition_reassignments import (
    API as LIST_PARTITION_REASSIGNMENTS,
)
from storage_engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)

_PREFERRED, _UNCLEAN = 0, 1

_Refused = (
    AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse
)


class Ongoing(NamedTuple):
    """A partition that is being moved."""

    replicas: tuple[int, ...]
    """All replicas that the partition has during the reassignment."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError]:
    """Ask for other replicas, or take that back (None); the partitions that were refused, with the
    reason. The others are on their way when this returns."""

    row = AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
    for tp, replicas in targets.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = replicas
    message = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.request_timeout_ms,
        topics=[
            row(
                name=name,
                partitions=[
                    row.ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in partitions.items()
                ],
            )
            for name, partitions in by_topic.items()
        ],
    )
    answer = _ask(cluster, ALTER_PARTITION_REASSIGNMENTS, message)
    return {
        TopicPartition(topic.name, item.partition_index): _failure(item)
        for topic in answer.responses
        for item in topic.partitions
        if item.error_code
    }


def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Ongoing]:
    """Every partition that is being moved."""
    message = ListPartitionReassignmentsRequest(timeout_ms=cluster.request_timeout_ms, topics=None)
    answer = _ask(cluster, LIST_PARTITION_REASSIGNMENTS, message)
    return {
        TopicPartition(topic.name, item.partition_index): Ongoing(
            tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
        )
        for topic in answer.topics
        for item in topic.partitions
    }


def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
) -> dict[TopicPartition, ErrorCode]:
    """Makes the preferred replicas of these partitions (None: of all) their leaders; with
    `unclean`, elects any live replica where no in-sync replica is left. Returns an outcome for each
    of the partitions; when all were meant, only for those that needed an election."""

    by_topic: dict[str, list[int]] = {}
    for tp in partitions or ():
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    rows = [
        ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in by_topic.items()
    ]
    message = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=None if partitions is None else rows,
        timeout_ms=cluster.request_timeout_ms,
    )
    answer = _ask(cluster, ELECT_LEADERS, message)
    return {
        TopicPartition(topic.topic, item.partition_id): ErrorCode.of(item.error_code)
        for topic in answer.replica_election_results
        for item in topic.partition_result
    }


def _ask(cluster: Cluster, spec: ApiSpec[Req, CodedT], message: Req) -> CodedT:
    """The controller's answer, once there is one without an error of the whole."""
    retry = Retry(spec.name, Deadline.after(cluster.deadline_ms))
    while True:
        try:
            answer = cluster.request(controller_of(cluster), spec, message)
        except (KafkaError, DeadlineExceededError) as error:
            pause(cluster, retry, error)
            continue
        if not answer.error_code:
            return answer
        code = ErrorCode.of(answer.error_code)
        text = getattr(answer, "error_message", None) or code.meaning
        pause(cluster, retry, KafkaError(text, code))


def _failure(item: _Refused) -> KafkaError:
    code = ErrorCode.of(item.error_code)
    return KafkaError(item.error_message or code.meaning, code)
