"""The state of a cluster at one look of the watcher, and figures derived from it.

A snapshot is never changed: a page never sees the next look of the watcher in part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.client.addresses import Address
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataPartition

NO_LEADER = -1


class Ends(NamedTuple):
    """The start offset, high watermark and last stable offset of a log; None: not known."""

    start: int | None
    high_watermark: int | None
    stable: int | None


NO_ENDS = Ends(None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDisk:
    """A log dir of a broker."""

    path: str
    total_bytes: int | None
    free_bytes: int | None
    log_bytes: int
    error: str | None
    reserve_bytes: int = 0
    """With less free space the broker refuses appends (log.dir.min.free.bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """A partition whose `read_committed` readers wait, and the transaction that they wait for."""

    tp: TopicPartition
    stable_offset: int
    end_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    first_offset: int | None = None
    transactional_id: str | None = None
    sink: tuple[str, str, int] | None = None
    """The Spark sink, its query and the micro-batch; None: another producer."""
    coordinator: int | None = None
    timeout_ms: int | None = None
    state: str | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A consumer group, and how far it is behind."""

    group: str
    state: str
    coordinator: int
    topics: frozenset[str]
    """The topics in which the group has committed offsets."""
    lag: int
    """The number of unread records."""
    lag_ms: int
    """How far the group is behind in its worst partition; a lower bound."""
    sure_lag_ms: int = 0
    """Like `lag_ms`, of partitions in which more than one look has found the group behind."""
    worst: TopicPartition | None = None
    had_members: bool = False
    """Whether the group has had members since the watcher started."""


class TopicFacts(NamedTuple):
    """A topic's facts from its settings; None: this user may not see them."""

    min_isr: int | None
    typed: bool | None


UNKNOWN_FACTS = TopicFacts(None, None)


def addresses_of(metadata: ClusterMetadata) -> dict[int, Address]:
    """Return the addresses of the live brokers."""
    return {broker: (each.host, each.port) for broker, each in metadata.brokers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at `at_ms`, in ms since 1970."""

    at_ms: int
    metadata: ClusterMetadata
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The bytes of a partition's log on its leader, or on the largest replica if the leader is
    silent."""
    disks: Mapping[int, tuple[ShownDisk, ...]] = field(default_factory=dict)
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)
    """The records a second of each partition, over the last looks."""
    topic_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    open_transactions: tuple[WaitingPartition, ...] = ()
    groups: Mapping[str, SeenGroup] | None = None
    """The groups by name; None: not known yet."""
    topic_facts: Mapping[str, TopicFacts] = field(default_factory=dict)
    """The topics asked for so far; to ask for many of them takes a minute."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers of the metadata that did not answer, with the reason."""
    gone: Mapping[int, int] = field(default_factory=dict)
    """When each broker was last seen that is not in the metadata, but was there or has replicas; in
    ms since 1970, 0 for never."""
    certificates: Mapping[int, int] = field(default_factory=dict)
    """The expiry of each broker's certificate, in ms since 1970."""
    unanswered: tuple[tuple[int | None, str, str], ...] = ()

    @property
    def addresses(self) -> dict[int, Address]:
        return addresses_of(self.metadata)

    def partitions(self) -> "list[tuple[TopicPartition, MetadataPartition]]":
        return [
            (TopicPartition(topic.topic, number), partition)
            for topic in self.metadata.topics.values()
            for number, partition in topic.partitions.items()
        ]

    def is_under_min_isr(self, topic: str, partition: MetadataPartition) -> bool | None:
        """Whether the partition refuses acks=all for lack of in-sync replicas; None: not known."""
        least = self.topic_facts.get(topic, UNKNOWN_FACTS).min_isr
        return None if least is None else len(partition.isr) < least

    def has_leader(self, partition: MetadataPartition) -> bool:
        return partition.leader in self.metadata.brokers
