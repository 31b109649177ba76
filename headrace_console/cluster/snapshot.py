"""What the watcher knows of a cluster at one moment, and what follows from it.

A snapshot is never changed: a page and the next look of the watcher do not meet.
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
    """Where a log ends; None where its leader did not say."""

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
    """What a `read_committed` reader of a partition waits for."""

    tp: TopicPartition
    stable_offset: int
    end_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    first_offset: int | None = None
    transactional_id: str | None = None
    sink: tuple[str, str, int] | None = None
    """Sink, query, batch."""
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
    """Of which it has offsets."""
    lag: int
    """Records."""
    lag_ms: int
    """How long ago what it has not read was there; at least, of its worst partition."""
    sure_lag_ms: int = 0
    """The same, of partitions in which more than one look has seen it behind."""
    worst: TopicPartition | None = None
    had_members: bool = False
    """Since this console looks."""


class TopicFacts(NamedTuple):
    """What settings say of a topic; None: this user may not see it."""

    min_isr: int | None
    typed: bool | None


UNKNOWN_FACTS = TopicFacts(None, None)


class Look(NamedTuple):
    """A broker that was looked at, or not: one that does not answer, with the reason."""

    at_ms: int
    error: str | None


def addresses_of(metadata: ClusterMetadata) -> dict[int, Address]:
    """Of the brokers that are there."""
    return {broker: (each.host, each.port) for broker, each in metadata.brokers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """See above."""

    at_ms: int
    metadata: ClusterMetadata
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Bytes on the leader."""
    disks: Mapping[int, tuple[ShownDisk, ...]] = field(default_factory=dict)
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Records a second, over the last looks."""
    topic_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    open_transactions: tuple[WaitingPartition, ...] = ()
    groups: Mapping[str, SeenGroup] | None = None
    """None: not known yet."""
    topic_facts: Mapping[str, TopicFacts] = field(default_factory=dict)
    """Of topics that were asked for; many of them take a minute."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers of the metadata that did not answer, with the reason."""
    gone: Mapping[int, int] = field(default_factory=dict)
    """Brokers that are not in the metadata, and were there or have replicas; when they were last
    seen, 0 for never."""
    certificates: Mapping[int, int] = field(default_factory=dict)
    """When each broker's certificate ends."""
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
        """Whether acks=all is refused for want of replicas; None: not known."""
        least = self.topic_facts.get(topic, UNKNOWN_FACTS).min_isr
        return None if least is None else len(partition.isr) < least

    def has_leader(self, partition: MetadataPartition) -> bool:
        return partition.leader in self.metadata.brokers
