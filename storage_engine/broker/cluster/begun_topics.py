"""The topics whose creation or growth has begun, until this broker's metadata has them: several may
be placed before that, and each counts what the others put where.
"""

from collections.abc import Iterator, Mapping
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.ids import BrokerId

KEPT_MAX = 20_000
"""The most partitions that are kept; the oldest topics are forgotten first."""

Replicas = tuple[BrokerId, ...]


class BegunTopics:
    """Topic -> its replicas, the oldest first."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[UUID, Mapping[int, Replicas]]] = {}
        self._partitions = 0

    def add(self, info: TopicInfo) -> None:
        """Keep a topic as it is to be."""
        self._remove(info.topic)
        self._topics[info.topic] = info.topic_id, info.assignment
        self._partitions += len(info.assignment)
        while self._partitions > KEPT_MAX:
            self._remove(next(iter(self._topics)))

    def drop(self, info: TopicInfo) -> None:
        """Forget a topic that was not written, unless it has been tried again since."""
        known = self._topics.get(info.topic)
        if known is not None and known[1] is info.assignment:
            self._remove(info.topic)

    def settle(self, metadata: MetadataCache) -> None:
        """Forget what the metadata has all partitions of."""
        for topic, (topic_id, assignment) in list(self._topics.items()):
            known = metadata.partitions(topic) or {}
            is_same = metadata.topic_id(topic) == topic_id
            if is_same and len(known) >= len(assignment):
                self._remove(topic)

    def missing_from(self, metadata: MetadataCache) -> Iterator[Replicas]:
        """Yield the replicas of each partition that the metadata does not have."""
        for topic, (_, assignment) in self._topics.items():
            known = metadata.partitions(topic) or {}
            for partition, replicas in assignment.items():
                if partition not in known:
                    yield replicas

    def _remove(self, topic: str) -> None:
        removed = self._topics.pop(topic, None)
        if removed is not None:
            self._partitions -= len(removed[1])
