"""Finds the topics that are to be written, by their settings and the lake's file.

A topic that is new is asked for its settings at once, others once a minute: brokers read them from
ZooKeeper.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace_lake.lake_settings import (
    FORMAT,
    TABLE_SETTINGS,
    LakeSettings,
    PlannedTables,
    planned,
)
from headrace_lake.reading.topic_settings import own_settings
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import INTERNAL_TOPICS, TopicPartition
from storage_engine.net.deadline import monotonic_ms

SETTINGS_AGE_MS = 60_000


class Discovered(NamedTuple):
    """The result of a look."""

    plan: PlannedTables
    ends: Mapping[TopicPartition, int]
    """The ends of what can be read committed, of the partitions that were asked for."""


class Discovery:
    """For one thread at a time."""

    def __init__(self, settings: LakeSettings, cluster: Cluster) -> None:
        """`cluster`: of its own."""
        self._settings = settings
        self._cluster = cluster
        # By topic: its id, when its settings were asked for, and those of its table.
        self._known: dict[str, tuple[UUID, int, dict[str, str]]] = {}

    def look(self, partitions: Collection[TopicPartition]) -> Discovered:
        """Find the tables, and the ends of these partitions. KafkaError and DeadlineExceededError
        where no broker answers."""
        self._cluster.refresh(None)
        topics = {
            name: topic.topic_id
            for name, topic in self._cluster.view.topics.items()
            if name not in INTERNAL_TOPICS and not topic.is_internal
        }
        now_ms = monotonic_ms()
        self._known = {
            name: known for name, known in self._known.items() if topics.get(name) == known[0]
        }
        unclear = [
            name
            for name in topics
            if name not in self._known or now_ms - self._known[name][1] >= SETTINGS_AGE_MS
        ]
        for name, given in own_settings(self._cluster, unclear, TABLE_SETTINGS).items():
            self._known[name] = (topics[name], now_ms, given)
        wanted = {name: given for name, (_, _, given) in self._known.items() if FORMAT in given}
        there = [tp for tp in partitions if tp.topic in topics]
        ends = self._cluster.log_bounds(there, isolation="read_committed").latest
        return Discovered(planned(self._settings, wanted, topics), ends)
