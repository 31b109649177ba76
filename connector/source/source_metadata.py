"""Requests metadata from the cluster for planning: which partitions there are, and where they begin
and end. A topic or partition counts as missing only after brokers have reported so for a while, as
a broker that has just started or just become leader may not know it yet.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never
from uuid import UUID

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.connection_options import ConnectionOptions
from connector.options.offset_specs import EARLIEST, LATEST
from connector.options.subscription import (
    AssignedPartitions,
    SubscribedTopics,
    Subscription,
    TopicPattern,
)
from connector.source.data_loss import keep_existing
from connector.source.offset_range import OffsetLookup, OffsetRange
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.client.metadata import TopicMetadata

TOPIC_PATIENCE_MS = 3_000
"""How long a topic that an option names may be unknown, as one is that was just created."""

GONE_PATIENCE_MS = 10_000
"""How long a partition that a query still has to read may be unknown before it counts as lost."""

POLL_MS = 100

_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""The error codes of topics that don't exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartitions:
    """The partitions that a subscription selects now. `missing` are names that no broker knows."""

    partitions: tuple[TopicPartition, ...]
    missing: tuple[str, ...]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of the topics, as far as brokers know them."""
    refused: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Topics that may exist, with the error that brokers return instead of their metadata."""

    def check_told(self) -> None:
        """ConnectorError where brokers refuse to describe a topic, as to a user without the right:
        such a topic must not count as deleted."""
        for name, code in self.refused.items():
            raise ConnectorError(code.name, f"the topic '{name}': {code.meaning}")


class SourceMetadata:
    """Asks for metadata and offsets through the process's connections. It holds no connection, so
    it can be pickled with a reader."""

    def __init__(self, options: ConnectionOptions, *, isolation_level: str) -> None:
        self._options = options
        self._isolation_level = isolation_level

    def find(self, subscription: Subscription, *, max_age_ms: int | None = None) -> FoundPartitions:
        """The partitions of a subscription, by metadata that is not older than `max_age_ms`."""
        age_ms = self._options.metadata_max_age_ms if max_age_ms is None else max_age_ms
        refused: dict[str, ErrorCode] = {}
        match subscription:
            case SubscribedTopics():
                topics, refused = self._topics(subscription.names, max_age_ms=age_ms)
                missing = [name for name in subscription.names if name not in topics]
            case TopicPattern():
                topics = {
                    name: topic
                    for name, topic in self._topics(None, max_age_ms=age_ms)[0].items()
                    if re.fullmatch(subscription.regex, name)
                }
                missing = [] if topics else [f"that matches '{subscription.regex}'"]
            case AssignedPartitions():
                names = tuple(dict.fromkeys(each.topic for each in subscription.partitions))
                topics, refused = self._topics(names, max_age_ms=age_ms)
                there = tuple(
                    each
                    for each in subscription.partitions
                    if each.topic in topics and each.partition in topics[each.topic].partitions
                )
                gone = set(subscription.partitions) - set(there)
                missing = [str(each) for each in subscription.partitions if each in gone]
                return FoundPartitions(
                    partitions=there,
                    missing=tuple(missing),
                    topic_ids=_ids(topics),
                    refused=refused,
                )
            case _:
                assert_never(subscription)
        partitions = [
            TopicPartition(name, partition)
            for name in sorted(topics)
            for partition in topics[name].partitions
        ]
        return FoundPartitions(
            partitions=tuple(partitions),
            missing=tuple(missing),
            topic_ids=_ids(topics),
            refused=refused,
        )

    def find_all(self, subscription: Subscription) -> FoundPartitions:
        """The partitions of a subscription at the start of a query, where every name must exist."""
        deadline = time.monotonic() + TOPIC_PATIENCE_MS / 1000
        found = self.find(subscription)
        while found.missing and time.monotonic() < deadline:
            time.sleep(POLL_MS / 1000)
            found = self.find(subscription, max_age_ms=0)
        if found.missing:
            found.check_told()
            kind = "partition" if isinstance(subscription, AssignedPartitions) else "topic"
            raise ConnectorError(
                "UNKNOWN_TOPIC",
                f"no {kind} {', '.join(found.missing)} on {self._options.bootstrap_servers}; "
                "create the topic, or correct the option",
            )
        return found

    def keep_existing(
        self, ranges: Sequence[OffsetRange], *, max_age_ms: int = 0
    ) -> tuple[list[OffsetRange], list[str]]:
        """`data_loss.keep_existing` by metadata that is not older than `max_age_ms`. It asks again
        for a while before it reports a loss."""
        wanted = AssignedPartitions(partitions=tuple({each.topic_partition for each in ranges}))
        deadline = time.monotonic() + GONE_PATIENCE_MS / 1000
        while True:
            found = self.find(wanted, max_age_ms=max_age_ms)
            kept, losses = keep_existing(ranges, found.partitions, found.topic_ids)
            if not losses:
                return kept, losses
            if time.monotonic() >= deadline:
                found.check_told()
                return kept, losses
            time.sleep(POLL_MS / 1000)
            max_age_ms = 0

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that `OffsetLookup` describes."""
        if not timestamps_ms:
            return {}
        with in_one_line():
            return cluster_for(self._options).list_offsets(
                timestamps_ms, isolation=self._isolation_level
            )

    def survey(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], "LogSurvey"]:
        """The latest offsets, like `offsets_at`, and the other results of the same requests.
        Metadata of the topics is new afterwards."""
        wanted = tuple(partitions)
        with in_one_line():
            bounds = cluster_for(self._options).log_bounds(wanted, isolation=self._isolation_level)
        survey = LogSurvey(self, bounds.earliest)
        left = [each for each in wanted if each not in bounds.latest]
        return {**bounds.latest, **self.offsets_at(dict.fromkeys(left, LATEST))}, survey

    def log_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The size of each log on its leader, in bytes."""
        from storage_engine.client.admin.log_dirs import sizes_on_leaders

        with in_one_line():
            return sizes_on_leaders(cluster_for(self._options), partitions)

    def _topics(
        self, names: tuple[str, ...] | None, *, max_age_ms: int
    ) -> "tuple[dict[str, TopicMetadata], dict[str, ErrorCode]]":
        """Topics by name, and the errors of topics that brokers don't describe. `names` None stands
        for all except the brokers' internal topics."""
        with in_one_line():
            metadata = cluster_for(self._options).metadata(names, max_age_ms=max_age_ms)
        topics = {
            name: topic
            for name, topic in metadata.topics.items()
            if names is not None or not topic.is_internal
        }
        refused = {name: code for name, code in metadata.errors.items() if code not in _NOT_THERE}
        return topics, {} if names is None else refused


YOUNG_MS = 1_000
"""How long a survey is young: Spark hands out ranges some 50 ms after a micro-batch is planned."""


class LogSurvey:
    """An `OffsetLookup` that knows the starts of the logs while it is young, and asks `lookup` for
    all else."""

    def __init__(self, lookup: OffsetLookup, earliest: Mapping[TopicPartition, int]) -> None:
        """Must be called right after the answers arrive: the survey's age counts from here."""
        self._lookup = lookup
        self._earliest = earliest
        self._asked_at = time.monotonic()

    @property
    def metadata_age_ms(self) -> int:
        """How old the metadata of topics may be when ranges are handed out: no older than the
        survey, and 0 when it is not young."""
        return YOUNG_MS if self._is_young else 0

    @property
    def earliest(self) -> Mapping[TopicPartition, int]:
        """The starts of the logs, as far as they are known."""
        return self._earliest if self._is_young else {}

    @property
    def _is_young(self) -> bool:
        return time.monotonic() < self._asked_at + YOUNG_MS / 1000

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `OffsetLookup`."""
        known = self.earliest
        found = {
            each: known[each]
            for each, at in timestamps_ms.items()
            if at == EARLIEST and each in known
        }
        left = {each: at for each, at in timestamps_ms.items() if each not in found}
        return {**found, **self._lookup.offsets_at(left)}


def _ids(topics: "Mapping[str, TopicMetadata]") -> dict[str, UUID]:
    """The ids of topics. Brokers that don't know topic ids answer 0."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id.int}
