"""The requests in flight on one connection to a leader.

A leader answers requests in the order in which they were sent: the next answer always belongs to
the oldest request.
"""

import time
from collections import deque
from typing import Generic, TypeVar

from storage_engine.client.cluster import SILENT_CHECK_MS, SILENT_MS, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms

Part = TypeVar("Part")


class InFlight(Generic[Part]):
    """A request to a leader. `parts` has what it fetches from, or writes to, each partition."""

    __slots__ = ("begun_ns", "deadline", "parts", "silent_at_ms")

    def __init__(
        self, parts: dict[TopicPartition, Part], timeout_ms: int, *, held_ms: int = 0
    ) -> None:
        """`held_ms`: how long a healthy leader may hold it before it answers."""
        self.parts = parts
        self.begun_ns = time.perf_counter_ns()
        self.wait(timeout_ms, held_ms=held_ms)

    def wait(self, timeout_ms: int, *, held_ms: int = 0) -> None:
        """Start the time in which the answer has to come."""
        self.deadline = Deadline.after(timeout_ms)
        self.silent_at_ms = monotonic_ms() + held_ms + SILENT_MS
        """The time from which on other leaders are looked for, as this one may hang."""


class LeaderRequests(Generic[Part]):
    """The requests to one leader. `sent` has them in their order; only the first is waited for."""

    def __init__(self, broker_id: int, connection: BrokerConnection) -> None:
        self.broker_id = broker_id
        self.connection = connection
        self.sent: deque[InFlight[Part]] = deque()
        self._checked_at_ms = 0

    def problem(self, cluster: Cluster) -> str | None:
        """Return why it is useless to wait longer for an answer; None while it is not."""
        if not self.sent:
            return None
        oldest, now_ms = self.sent[0], monotonic_ms()
        if oldest.deadline.passed:
            return f"{self.connection.name}: no answer in time"
        if now_ms < max(oldest.silent_at_ms, self._checked_at_ms + SILENT_CHECK_MS):
            return None
        self._checked_at_ms = now_ms
        if not cluster.has_moved(oldest.parts, self.broker_id, self.connection):
            return None
        return f"{self.connection.name}: it does not answer, and others lead by now"
