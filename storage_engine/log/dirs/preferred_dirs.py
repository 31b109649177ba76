"""In which log dirs clients want replicas that this broker does not have yet.

Kept while the broker runs, as Kafka does. Source: KIP-113.
"""

from pathlib import Path

from storage_engine.core.ids import TopicPartition

PREFERRED_MAX = 10_000
"""Replicas; beyond it the oldest wishes are forgotten, since clients could ask for any number."""


class PreferredDirs:
    """By partition."""

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, Path] = {}

    def prefer(self, topic_partition: TopicPartition, path: Path) -> None:
        """The latest wish counts."""
        self._paths.pop(topic_partition, None)
        self._paths[topic_partition] = path
        if len(self._paths) > PREFERRED_MAX:
            del self._paths[next(iter(self._paths))]

    def take(self, topic_partition: TopicPartition) -> Path | None:
        """The log dir for a replica that is made now; the wish is forgotten."""
        return self._paths.pop(topic_partition, None)
