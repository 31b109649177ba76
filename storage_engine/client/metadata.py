"""The client's view of the cluster.

A view is frozen; a refresh makes a new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode
from storage_engine.protocol.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic and its partitions by number."""

    topic: str
    topic_id: UUID
    is_internal: bool
    partitions: Mapping[int, MetadataPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Brokers that are alive, and topics as far as they were asked for."""

    brokers: Mapping[int, MetadataBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Topics that were asked for and can't be had: unknown, or no valid name."""
    controller_id: int = -1
    cluster_id: str | None = None


class Leader(NamedTuple):
    """The leader of a partition, and its leader epoch, as far as known."""

    broker_id: int
    epoch: int


TOLD_MS = 5_000
"""The longest time for which a broker's metadata may be behind another broker's."""

_USABLE_TOPIC = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)


def view_of(response: MetadataResponse) -> ClusterMetadata:
    """Return the answer of a broker as a view."""
    topics: dict[str, TopicMetadata] = {}
    errors: dict[str, ErrorCode] = {}
    for topic in response.topics:
        if topic.topic is None:
            continue
        code = ErrorCode.of(topic.error_code)
        if code in _USABLE_TOPIC:
            topics[topic.topic] = _topic(topic.topic, topic)
        else:
            errors[topic.topic] = code
    return ClusterMetadata(
        brokers=MappingProxyType({broker.broker_id: broker for broker in response.brokers}),
        topics=MappingProxyType(topics),
        errors=MappingProxyType(errors),
        controller_id=response.controller_id,
        cluster_id=response.cluster_id,
    )


def with_leader(
    view: ClusterMetadata, tp: TopicPartition, leader: Leader, nodes: Iterable[LeaderNode]
) -> ClusterMetadata | None:
    """Return the view with the new leader that a former leader has named (KIP-951); None where its
    epoch is not newer, or its address is not known."""
    topic = view.topics.get(tp.topic)
    known = None if topic is None else topic.partitions.get(tp.partition)
    if topic is None or known is None or leader.epoch <= known.leader_epoch:
        return None
    brokers = dict(view.brokers)
    for node in nodes:
        brokers[node.broker_id] = MetadataBroker(
            broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
        )
    if leader.broker_id not in brokers:
        return None
    moved = replace(known, leader=leader.broker_id, leader_epoch=leader.epoch, error_code=0)
    partitions = MappingProxyType({**topic.partitions, tp.partition: moved})
    return replace(
        view,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType({**view.topics, tp.topic: replace(topic, partitions=partitions)}),
    )


def _topic(name: str, topic: MetadataTopic) -> TopicMetadata:
    partitions = {partition.partition: partition for partition in topic.partitions}
    return TopicMetadata(
        topic=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=MappingProxyType(dict(sorted(partitions.items()))),
    )


class ToldLeaders:
    """Leaders that brokers have named when they refused to serve a client.

    A broker that has just moved a partition knows the new leader before all others do. So it
    overrides the next answers about metadata, until one of them is as new: otherwise a client would
    be sent back and forth. Source: KIP-951.
    """

    def __init__(self) -> None:
        self._told: dict[TopicPartition, tuple[Leader, int]] = {}

    def told(
        self,
        view: ClusterMetadata,
        tp: TopicPartition,
        current: CurrentLeader | None,
        nodes: Iterable[LeaderNode],
    ) -> ClusterMetadata | None:
        """Return the view with the leader; None where that is known already."""
        if current is None:
            return None
        leader = Leader(*current)
        changed = with_leader(view, tp, leader, nodes)
        if changed is not None:
            self._told[tp] = leader, monotonic_ms() + TOLD_MS
        return changed

    def kept(self, before: ClusterMetadata, fresh: ClusterMetadata) -> ClusterMetadata:
        """Return an answer about metadata in which newer named leaders replace older ones."""
        now_ms = monotonic_ms()
        for tp, (leader, until_ms) in list(self._told.items()):
            known, found = before.topics.get(tp.topic), fresh.topics.get(tp.topic)
            if now_ms < until_ms and found is None:
                continue
            changed = None
            if now_ms < until_ms and known is not None and found is not None:
                is_same = known.topic_id == found.topic_id
                changed = with_leader(fresh, tp, leader, ()) if is_same else None
            if changed is None:
                # Known by now, dead, or of a topic that was made anew.
                del self._told[tp]
            else:
                fresh = changed
        return fresh
