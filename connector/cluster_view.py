"""What planning asks of the cluster: which partitions there are, and where they begin and end. Its
one rule: "not there" is told only after it has been asked for again for a while, because a broker
that has just started or just become leader may not know yet.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options import Assigned, ConnectionOptions, Subscription, TopicPattern, Topics
from storage_engine.core.ids import TopicPartition

TOPIC_PATIENCE_MS = 3_000
"""How long a topic that was named may be unknown to the brokers: one that has just been made is."""

POLL_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartitions:
    """What a subscription stands for at the moment; `missing` are names that no broker knows."""

    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...]


class ClusterView:
    """Metadata and offsets through the process's connections. Holds no connection, so it can be
    pickled with a reader."""

    def __init__(self, options: ConnectionOptions, *, isolation_level: str) -> None:
        self._options = options
        self._isolation_level = isolation_level

    def find(self, subscription: Subscription, *, max_age_ms: int | None = None) -> FoundPartitions:
        """The partitions of a subscription, by metadata of at most that age."""
        age_ms = self._options.metadata_max_age_ms if max_age_ms is None else max_age_ms
        match subscription:
            case Topics():
                topics = self._topics(subscription.names, max_age_ms=age_ms)
                missing = [name for name in subscription.names if name not in topics]
            case TopicPattern():
                topics = {
                    name: partitions
                    for name, partitions in self._topics(None, max_age_ms=age_ms).items()
                    if re.fullmatch(subscription.regex, name)
                }
                missing = [] if topics else [f"that matches '{subscription.regex}'"]
            case Assigned():
                names = tuple(dict.fromkeys(each.topic for each in subscription.partitions))
                topics = self._topics(names, max_age_ms=age_ms)
                there = tuple(
                    each
                    for each in subscription.partitions
                    if each.partition in topics.get(each.topic, ())
                )
                missing = [str(each) for each in subscription.partitions if each not in there]
                return FoundPartitions(partitions=there, missing=tuple(missing))
            case _:
                assert_never(subscription)
        partitions = [
            TopicPartition(name, partition) for name in sorted(topics) for partition in topics[name]
        ]
        return FoundPartitions(partitions=tuple(partitions), missing=tuple(missing))

    def find_all(self, subscription: Subscription) -> tuple[TopicPartition, ...]:
        """The same at the start of a query, where every name must exist."""
        deadline = time.monotonic() + TOPIC_PATIENCE_MS / 1000
        found = self.find(subscription)
        while found.missing and time.monotonic() < deadline:
            time.sleep(POLL_MS / 1000)
            found = self.find(subscription, max_age_ms=0)
        if found.missing:
            kind = "partition" if isinstance(subscription, Assigned) else "topic"
            raise ConnectorError(
                "UNKNOWN_TOPIC",
                f"no {kind} {', '.join(found.missing)} on {self._options.bootstrap_servers}; "
                "create the topic, or correct the option",
            )
        return found.partitions

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`positions.OffsetLookup`."""
        if not timestamps_ms:
            return {}
        with in_one_line():
            return cluster_for(self._options).list_offsets(
                timestamps_ms, isolation=self._isolation_level
            )

    def _topics(
        self, names: tuple[str, ...] | None, *, max_age_ms: int
    ) -> dict[str, tuple[int, ...]]:
        """Partition numbers by topic; a pattern does not see the brokers' own topics."""
        with in_one_line():
            metadata = cluster_for(self._options).metadata(names, max_age_ms=max_age_ms)
        return {
            name: tuple(topic.partitions)
            for name, topic in metadata.topics.items()
            if names is not None or not topic.is_internal
        }
