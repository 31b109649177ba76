"""Asks the controller for reassignments and elections of leaders.

Each partition succeeds or is refused by itself. The requests are idempotent, so that they are sent
again after a lost answer. Source: R-TOOL3, R-TOOL4, R-CTL8; KIP-455, KIP-460.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from storage_engine.client.admin.requests import ask_controller, error_of
from storage_engine.client.admin.topics import (
    ALL_BROKERS,
    alter_broker_configs,
    alter_topic_configs,
    describe_broker_configs,
)
from storage_engine.client.asking import error_from
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition, by_topic, numbers_by_topic
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.settings import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.messages.alter_partition_reassignments import (
    API as ALTER_PARTITION_REASSIGNMENTS,
)
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
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


class Ongoing(NamedTuple):
    """A partition that is being moved."""

    replicas: tuple[int, ...]
    """All replicas that the partition has during the reassignment."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError]:
    """Move partitions to other brokers, the preferred leader first; None takes that back. The
    partitions that were refused, with the reason; the others are on their way."""
    row = AlterPartitionReassignmentsRequest.ReassignableTopic
    message = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.request_timeout_ms,
        topics=[
            row(
                name=name,
                partitions=[
                    row.ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in partitions
                ],
            )
            for name, partitions in by_topic(targets).items()
        ],
    )
    answer = ask_controller(cluster, ALTER_PARTITION_REASSIGNMENTS, message, error_of)
    return {
        TopicPartition(topic.name, row.partition_index): error
        for topic in answer.responses
        for row in topic.partitions
        if (error := error_of(row)) is not None
    }


def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Ongoing]:
    """The reassignments in progress."""
    message = ListPartitionReassignmentsRequest(timeout_ms=cluster.request_timeout_ms, topics=None)
    answer = ask_controller(cluster, LIST_PARTITION_REASSIGNMENTS, message, error_of)
    return {
        TopicPartition(topic.name, row.partition_index): Ongoing(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
) -> dict[TopicPartition, ErrorCode]:
    """Have the preferred replicas of these partitions (None: of all) lead; with `unclean`, any live
    replica where no in-sync one is left: what it does not have is lost. How each ended; of all,
    only those that needed one."""
    row = ElectLeadersRequest.TopicPartitions
    message = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=None
        if partitions is None
        else [
            row(topic=name, partitions=numbers)
            for name, numbers in numbers_by_topic(partitions).items()
        ],
        timeout_ms=cluster.request_timeout_ms,
    )
    answer = ask_controller(
        cluster, ELECT_LEADERS, message, lambda answer: error_from(answer.error_code)
    )
    return {
        TopicPartition(topic.topic, row.partition_id): ErrorCode.of(row.error_code)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


# --- the throttle: settings of brokers and topics, set before and removed after it. Replicas
# that move are throttled, at the sender and at the receiver; replicas in sync never are (KIP-73).

_RATES = (LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE)
_REPLICAS = (LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS)


def set_throttle(
    cluster: Cluster,
    plan: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Throttle what the plan copies: any present replica may have to send, the new ones take.

    Returns when each live broker of the plan has the rate. Raises DeadlineExceededError where one
    of them does not take it in time: a move that began then would be copied at full speed.
    """
    for topic in sorted({tp.topic for tp in plan}):
        sending: list[str] = []
        taking: list[str] = []
        for tp in sorted(p for p in plan if p.topic == topic):
            before = current.get(tp, ())
            sending += [f"{tp.partition}:{broker}" for broker in before]
            taking += [f"{tp.partition}:{b}" for b in plan[tp] if b not in before]
        values = {LEADER_THROTTLED_REPLICAS: sending, FOLLOWER_THROTTLED_REPLICAS: taking}
        alter_topic_configs(
            cluster,
            topic,
            {name: ",".join(replicas) for name, replicas in values.items() if replicas},
        )
    alter_broker_configs(cluster, ALL_BROKERS, dict.fromkeys(_RATES, str(bytes_per_second)))
    involved = {broker for tp in plan for broker in (*plan[tp], *current.get(tp, ()))}
    for broker in sorted(involved & cluster.metadata([]).brokers.keys()):
        _wait_for_rate(cluster, broker, str(bytes_per_second))


def _wait_for_rate(cluster: Cluster, broker: int, wanted: str) -> None:
    """Brokers learn of settings one after another. A rate that the broker has of its own stays, and
    a broker of Apache Kafka may not list its rates."""
    retry = Retry(f"throttle of broker {broker}", Deadline.after(cluster.deadline_ms))
    while True:
        error: HeadraceError = DeadlineExceededError("its rate is not in force yet")
        try:
            settings = describe_broker_configs(cluster, broker)
        except (KafkaError, DeadlineExceededError) as failure:
            error = failure
        else:
            entries = [settings[name] for name in _RATES if name in settings]
            if all(e.value == wanted or e.source is ConfigSource.BROKER for e in entries):
                return
        retry.pause(error)


def take_throttle_away(cluster: Cluster, topics: Iterable[str], *, of_brokers: bool) -> None:
    """Removes the throttle from these topics; from the brokers only when no other reassignment
    needs it."""
    for topic in sorted(topics):
        alter_topic_configs(cluster, topic, {}, remove=_REPLICAS)
    if of_brokers:
        alter_broker_configs(cluster, ALL_BROKERS, {}, remove=_RATES)
