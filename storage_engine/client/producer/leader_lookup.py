"""Looks for leaders while batches wait.

It asks no more often than retries need it. A failed refresh is repeated, not raised; a topic that
stays unknown is reported.
"""

from collections.abc import Iterable

from storage_engine.client.cluster import LOOKUP_MS, Cluster
from storage_engine.client.producer.produce_queue import PartitionQueue
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import DeadlineExceededError, KafkaError
from storage_engine.net.deadline import Deadline, monotonic_ms

_LEAST_MS = 100
"""A refresh has this time even if a batch is about to expire."""

_QUIET_MS = 2_000
"""After so long without a request, the pauses between requests begin short again."""


class LeaderLookup:
    """The topics whose leaders are in doubt."""

    __slots__ = (
        "_asked_at_ms",
        "_cluster",
        "_missing_since_ms",
        "_topics",
        "_tries",
        "due_at_ms",
        "last_error",
    )

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: set[str] = set()
        self._missing_since_ms: dict[str, int] = {}
        self.due_at_ms = 0
        self._asked_at_ms = 0
        # The number of requests in a row.
        self._tries = 0
        # Why the last refresh failed; empty when it did not.
        self.last_error = ""

    def doubt(self, topic: str) -> None:
        self._topics.add(topic)

    @property
    def wanted(self) -> bool:
        return bool(self._topics)

    def refresh_if_due(self, queues: Iterable[PartitionQueue]) -> list[str]:
        """Refreshes the leaders if it is due, in no longer than until the first batch expires.
        Returns the topics that have been unknown for too long."""
        now_ms = monotonic_ms()
        if now_ms < self.due_at_ms:
            return []
        if now_ms - self._asked_at_ms > _QUIET_MS:
            self._tries = 0
        self._asked_at_ms = now_ms
        self.due_at_ms = now_ms + pause_ms(self._tries)
        self._tries += 1
        expiries = [queue.waiting[0].expires_at_ms for queue in queues if queue.waiting]
        left_ms = min(expiries, default=now_ms) - now_ms
        timeout_ms = max(_LEAST_MS, min(LOOKUP_MS, left_ms))
        topics = set(self._topics)
        try:
            self._cluster.refresh(topics, Deadline.after(timeout_ms))
        except (KafkaError, DeadlineExceededError) as error:
            self.last_error = str(error)
            return []
        self.last_error = ""
        self._topics -= topics
        gone = []
        for topic in topics:
            if self._cluster.knows(topic):
                self._missing_since_ms.pop(topic, None)
                continue
            since_ms = self._missing_since_ms.setdefault(topic, now_ms)
            if now_ms - since_ms >= self._cluster.unknown_topic_wait_ms:
                gone.append(topic)
        return gone
