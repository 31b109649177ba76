"""Translates the committed offsets of groups, so that a group of a source can continue in the
target.

An offset in the target is never moved back, and never while the group has members there, which read
on by themselves. An offset that can't be translated or stored is tried again in the next round;
only the groups themselves wait for it. Source: R-CLI6, KIP-545.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.client.admin.groups import list_groups
from storage_engine.client.cluster import EARLIEST, Cluster
from storage_engine.client.groups.committed_offsets import OffsetCommitter, committed_offsets
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.groups.group import CONSUMER
from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.mirror import Mirror
from storage_engine.mirror.source import Tell
from storage_engine.net.deadline import monotonic_ms

DEADLINE_MS = 5_000
"""The timeout of each request: a coordinator that is away must not stop the copying for long."""

LOOK_AGAIN_MS = 3_600_000
"""The interval for groups whose offsets do not move: brokers forget offsets that are not committed
for a week (offsets.retention.minutes)."""

_SIMPLE = ""
"""The protocol of a group that only stores offsets."""


class SyncedGroup(NamedTuple):
    """A group whose offsets one round has moved."""

    source: str
    group: str
    partitions: int
    """The number of partitions whose offsets were moved in the target."""


class MirroredGroups:
    """The groups whose whole name matches the pattern."""

    def __init__(
        self,
        mirror: Mirror,
        pattern: re.Pattern[str],
        target: Cluster,
        sources: Mapping[str, Cluster],
        report: Tell,
    ) -> None:
        """`target` and `sources`, these by name: connections of this object's own, which it
        closes. Their calls should end within DEADLINE_MS."""
        self._mirror = mirror
        self._pattern = pattern
        self._report = report
        self._target = target
        self._sources = sources
        # By group: the offsets it was moved to last, and until when they need no comparison.
        self._known: dict[tuple[str, str], tuple[dict[TopicPartition, int], int]] = {}

    def sync(self) -> list[SyncedGroup]:
        """Does one round over all groups and returns those that were moved. Failures are
        reported."""
        moved = []
        for source, cluster in self._sources.items():
            try:
                groups = [
                    each.group
                    for each in list_groups(cluster)
                    if each.protocol_type in (CONSUMER, _SIMPLE)
                    and self._pattern.fullmatch(each.group)
                ]
            except HeadraceError as error:
                self._report(f"groups of {source}: {error}")
                continue
            for group in groups:
                try:
                    count = self._sync(source, cluster, group)
                except HeadraceError as error:
                    self._report(f"group '{group}' of {source}: {error}")
                    continue
                if count:
                    moved.append(SyncedGroup(source, group, count))
        return moved

    def _sync(self, source: str, cluster: Cluster, group: str) -> int:
        wanted = self._translated(source, committed_offsets(cluster, group))
        now_ms = monotonic_ms()
        known, until_ms = self._known.get((source, group), ({}, now_ms))
        if not wanted or (wanted == known and now_ms < until_ms):
            return 0
        # A reader before the beginning would be sent to the end by `auto.offset.reset`.
        starts = self._target.list_offsets(dict.fromkeys(wanted, EARLIEST))
        present = committed_offsets(self._target, group)
        later = {
            tp: max(offset, starts[tp])
            for tp, offset in wanted.items()
            if present.get(tp, -1) < max(offset, starts[tp])
        }
        if later:
            try:
                OffsetCommitter(self._target, group).commit(later)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                    raise
                return 0
        self._known[source, group] = wanted, now_ms + LOOK_AGAIN_MS
        return len(later)

    def _translated(
        self, source: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return offsets by target partition, for partitions of which something was copied."""
        found = {}
        for tp, offset in offsets.items():
            copy = self._mirror.copy_of(source, tp)
            translated = None if copy is None else self._mirror.progress.translate(copy, offset)
            if copy is not None and translated is not None:
                found[copy.target] = translated
        return found

    def close(self) -> None:
        """Close the connections."""
        for cluster in (self._target, *self._sources.values()):
            cluster.close()
