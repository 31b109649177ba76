"""How far reassignments are, and the beginning of one: what all commands share that move
partitions."""

from collections.abc import Iterable, Mapping

from storage_engine.client.admin.reassignment import (
    Ongoing,
    alter_reassignments,
    list_reassignments,
    set_throttle,
    take_throttle_away,
)
from storage_engine.client.cluster import Cluster
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.reassign_plan import Plan

DONE, MOVING, FAILED = "completed", "in progress", "failed"
"""The states of a partition of a plan, in the words of `headrace reassign verify`."""

WAITS_FOR_DEAD = "waits for dead brokers"
"""Begins the text of a move that can't end now."""


def begin(
    cluster: Cluster, plan: Plan, current: Plan, throttle: int | None
) -> dict[TopicPartition, KafkaError]:
    """Begin the reassignments of a plan; return those that were refused. `throttle`: bytes a
    second for each broker that sends or receives, None: no limit."""
    if throttle is not None:
        set_throttle(cluster, plan, current, throttle)
    return alter_reassignments(cluster, plan)


def end_throttle(cluster: Cluster, plan: Plan, topics: Iterable[str]) -> None:
    """Remove the throttle of a plan that is over, except from brokers that move others."""
    others = list_reassignments(cluster).keys() - plan.keys()
    take_throttle_away(cluster, topics, of_brokers=not others)


def plan_states(
    plan: Plan, view: ClusterMetadata, ongoing: Mapping[TopicPartition, Ongoing]
) -> dict[TopicPartition, tuple[str, str]]:
    """Return state and detail of each partition, in order."""
    return {tp: progress(tp, plan[tp], view, ongoing.get(tp)) for tp in sorted(plan)}


def progress(
    tp: TopicPartition, target: tuple[int, ...], view: ClusterMetadata, ongoing: Ongoing | None
) -> tuple[str, str]:
    """State of a partition's reassignment, and a text with what it waits for."""
    topic = view.topics.get(tp.topic)
    partition = topic.partitions.get(tp.partition) if topic is not None else None
    if partition is None:
        return FAILED, "there is no such partition"
    if ongoing is not None:
        missing = [broker for broker in target if broker not in partition.isr]
        dead = [broker for broker in missing if broker not in view.brokers]
        if dead:
            return MOVING, f"{WAITS_FOR_DEAD} {', '.join(map(str, dead))}"
        if missing:
            return MOVING, f"not in sync yet: {', '.join(map(str, missing))}"
        return MOVING, "old replicas are being deleted"
    if tuple(partition.replicas) == target:
        return DONE, ""
    return FAILED, f"replicas are {', '.join(map(str, partition.replicas))}"
