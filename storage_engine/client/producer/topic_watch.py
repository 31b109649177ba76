"""Keeps the partitions of topics for threads that send; only the producer's loop requests them.

A request that fails is repeated; a topic that stays unknown is an error for those who wait. All
methods but `request` need the loop's lock.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import DeadlineExceededError, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

_REQUEST_MS = 1_000
"""The time limit of one request; batches of other topics wait meanwhile."""

_PAUSE_MS = 100
"""The time between two requests for a topic."""


class TopicPartitions(NamedTuple):
    """The metadata by which a producer chooses a partition."""

    partition_count: int
    available: Sequence[int]
    """The partitions with a leader; all where none has one."""
    learnt_ms: int


class _Wish:
    __slots__ = ("due_ms", "last_error", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.due_ms = now_ms
        self.last_error: HeadraceError | None = None


class TopicWatch:
    """Topics that are known, and topics that are asked for."""

    def __init__(self, *, unknown_wait_ms: int) -> None:
        self._unknown_wait_ms = unknown_wait_ms
        self._known: dict[str, TopicPartitions] = {}
        self._wishes: dict[str, _Wish] = {}
        self._errors: dict[str, HeadraceError] = {}

    def known(self, topic: str) -> TopicPartitions | None:
        return self._known.get(topic)

    def want(self, topic: str, now_ms: int) -> bool:
        """Ask for the topic; False when it is asked for already."""
        if topic in self._wishes:
            return False
        self._errors.pop(topic, None)
        self._wishes[topic] = _Wish(now_ms)
        return True

    def failure(self, topic: str) -> HeadraceError | None:
        """Return why the topic is not available; forgotten when it is asked for again."""
        return self._errors.get(topic)

    def last_error(self, topic: str) -> HeadraceError | None:
        """Return the error of the last request for the topic."""
        wish = self._wishes.get(topic)
        return None if wish is None else wish.last_error

    def due(self, now_ms: int) -> list[str]:
        """Return the topics to ask for now."""
        return [topic for topic, wish in self._wishes.items() if wish.due_ms <= now_ms]

    def due_in_ms(self, now_ms: int) -> int | None:
        """The time until the next request is due."""
        due_ms = [wish.due_ms for wish in self._wishes.values()]
        return max(0, min(due_ms) - now_ms) if due_ms else None

    @staticmethod
    def request(cluster: Cluster, topics: Iterable[str]) -> HeadraceError | None:
        """Refreshes the cluster's metadata of these topics; returns the error when that fails."""
        try:
            cluster.refresh(topics, Deadline.after(_REQUEST_MS))
        except (KafkaError, DeadlineExceededError) as error:
            return error
        return None

    def seen(
        self, cluster: Cluster, topics: Iterable[str], error: HeadraceError | None, now_ms: int
    ) -> None:
        """Stores the result of a request."""
        view = cluster.view
        for topic in topics:
            wish = self._wishes[topic]
            found = view.topics.get(topic)
            if error is None and found is not None:
                led = [number for number, each in found.partitions.items() if each.leader >= 0]
                count = len(found.partitions)
                self._known[topic] = TopicPartitions(count, led or range(count), now_ms)
                del self._wishes[topic]
                continue
            wish.last_error = error
            if error is None:
                unknown = cluster.unknown(TopicPartition(topic, 0))
                wish.last_error = unknown
                waited_ms = now_ms - wish.since_ms
                if not unknown.retriable or waited_ms >= self._unknown_wait_ms:
                    self._known.pop(topic, None)
                    self._errors[topic] = unknown
                    del self._wishes[topic]
                    continue
            elif isinstance(error, KafkaError) and not error.retriable:
                self._errors[topic] = error
                del self._wishes[topic]
                continue
            wish.due_ms = now_ms + _PAUSE_MS
