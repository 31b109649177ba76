"""The log dirs that clients prefer for replicas that this broker does not have yet.

They are kept while the broker runs, as Kafka does. Source: KIP-113.
"""

from pathlib import Path

from storage_engine.core.ids import TopicPartition

PREFERRED_MAX = 10_000
"""The most replicas with a preferred log dir; beyond it the oldest are forgotten, since clients
could name any number."""


class PreferredDirs:
    """The preferred log dirs by partition."""

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, Path] = {}

    def prefer(self, topic_partition: TopicPartition, path: Path) -> None:
        """Records a preference; the latest one counts."""
        self._paths.pop(topic_partition, None)
        self._paths[topic_partition] = path
        if len(self._paths) > PREFERRED_MAX:
            del self._paths[next(iter(self._paths))]

    def take(self, topic_partition: TopicPartition) -> Path | None:
        """Return the log dir for a replica that is created now, and forget the preference."""
        return self._paths.pop(topic_partition, None)
