"""Topics whose creation somebody may wait for: they are ready once all partitions have a state.

Each step looks at the topics that it has touched, and at those of their partitions that had no
state before; a look at all of them would make a creation quadratic.
"""

from collections.abc import Iterable

from storage_engine.core.control.controlled_cluster import ControlledCluster, ControlledPartition
from storage_engine.core.control.controller_events import TopicsReady


class AwaitedTopics:
    """The topics that are not ready."""

    def __init__(self, cluster: ControlledCluster) -> None:
        """`cluster` is only read."""
        self._cluster = cluster
        self._without_state: dict[str, list[ControlledPartition]] = {}
        """By topic: its partitions, without those from the end that had a state at the last look;
        a state once known stays known."""
        self._touched: set[str] = set()

    def add(self, topics: Iterable[str]) -> None:
        """Await these, in which partitions may be new."""
        for name in topics:
            known = self._cluster.topics.get(name)
            if known is not None:
                self._without_state[name] = list(reversed(known.partitions.values()))
                self._touched.add(name)

    def touch(self, topics: Iterable[str]) -> None:
        """Look at these in this step: partitions may have got a state, or the topic may be gone."""
        self._touched.update(topics)

    def take_ready(self) -> list[TopicsReady]:
        """Return the topics that are ready since the last step."""
        ready = []
        for name in sorted(self._touched & self._without_state.keys()):
            topic = self._cluster.topics.get(name)
            if topic is None or topic.deleting:
                del self._without_state[name]
                continue
            left = self._without_state[name]
            while left and left[-1].state is not None:
                left.pop()
            if not left:
                del self._without_state[name]
                ready.append(name)
        self._touched.clear()
        return [TopicsReady(topics=tuple(ready))] if ready else []
