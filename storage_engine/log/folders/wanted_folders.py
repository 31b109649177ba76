"""In which data folders replicas are to be made that are not here yet. Its one rule: what clients
ask for has a bound.

Kept while the broker runs, as Kafka does. Source: KIP-113.
"""

from pathlib import Path

from storage_engine.core.ids import TopicPartition

WANTED_MAX = 10_000
"""Replicas; beyond it the oldest wishes are forgotten."""


class WantedFolders:
    """Where somebody wants replicas that are still to be made."""

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, Path] = {}

    def want(self, topic_partition: TopicPartition, path: Path) -> None:
        """The latest wish counts."""
        self._paths.pop(topic_partition, None)
        self._paths[topic_partition] = path
        if len(self._paths) > WANTED_MAX:
            del self._paths[next(iter(self._paths))]

    def take(self, topic_partition: TopicPartition) -> Path | None:
        """The folder for a replica that is made now."""
        return self._paths.pop(topic_partition, None)
