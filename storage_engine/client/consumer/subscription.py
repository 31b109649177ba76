"""The topics that a consumer is subscribed to, by name or by a pattern, and how many partitions
they have.

A topic that does not exist has no partitions; it is looked for often until it does. Internal topics
match no pattern. Source: R-CLI2.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import INTERNAL_TOPICS
from storage_engine.net.deadline import Deadline

REFRESH_MS = 1_000
"""The time for one metadata request."""

MISSING_TOPIC_REFRESH_MS = 1_000
"""The pause between two metadata requests while a topic is missing."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Names, or a pattern that whole names match."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None


NO_TOPICS = Subscription()


class TopicCounts:
    """The metadata by which one member assigns partitions. It is for one thread."""

    def __init__(self, cluster: Cluster, *, max_age_ms: int) -> None:
        self._cluster = cluster
        self._max_age_ms = max_age_ms
        self._subscription = Subscription()
        self._others: frozenset[str] = frozenset()
        self._known: dict[str, int] = {}
        self._looked_ms: int | None = None

    def subscribe(self, subscription: Subscription, now_ms: int) -> frozenset[str]:
        """Return the topics of the subscription, as they are now. KafkaError or
        DeadlineExceededError when no broker answers."""
        self._subscription, self._others = subscription, frozenset()
        self._known = self._refresh(now_ms)
        return frozenset(self._known)

    def watch(self, topics: Collection[str], now_ms: int) -> dict[str, int]:
        """Watch these topics, too, which other members want. Returns the number of partitions of
        every topic that is watched."""
        self._others = frozenset(topics)
        self._known = self._refresh(now_ms)
        return self._known

    def changed(self, now_ms: int) -> bool:
        """Refreshes the metadata when it is due; returns whether the data that the present
        generation's assignment was made from has changed."""
        if self._looked_ms is None or now_ms < self.due_ms():
            return False
        before, self._known = self._known, self._refresh(now_ms)
        return before != self._known

    def due_ms(self) -> int:
        """The time of the next metadata request; failed requests count too."""
        missing = not all(self._known.values()) or not self._known
        pause_ms = MISSING_TOPIC_REFRESH_MS if missing else self._max_age_ms
        return (self._looked_ms or 0) + min(pause_ms, self._max_age_ms)

    def _refresh(self, now_ms: int) -> dict[str, int]:
        self._looked_ms = now_ms
        pattern = self._subscription.pattern
        names = self._subscription.topics | self._others
        self._cluster.refresh(None if pattern is not None else names, Deadline.after(REFRESH_MS))
        there = self._cluster.view.topics
        if pattern is not None:
            matching = frozenset(filter(pattern.fullmatch, there)) - INTERNAL_TOPICS
            names = matching | self._others
        return {name: len(there[name].partitions) if name in there else 0 for name in names}
