"""The connection to one leader, with the Produce requests in flight on it.

Answers come in the order of the requests, so each answer is that of the oldest request.
"""

import time
from collections import deque

from storage_engine.client.cluster import SILENT_CHECK_MS, SILENT_MS, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.producer.produce_queue import PendingBatch
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms


class ProduceInFlight:
    """A Produce request: at most one batch of each partition."""

    __slots__ = ("batches", "begun_ns", "deadline")

    def __init__(self, batches: dict[TopicPartition, PendingBatch], deadline: Deadline) -> None:
        # The batches without an outcome so far.
        self.batches = batches
        self.begun_ns = time.perf_counter_ns()
        self.deadline = deadline


class LeaderConnection:
    """`requests` holds those in flight, oldest first."""

    __slots__ = ("_checked_at_ms", "broker_id", "connection", "requests")

    def __init__(self, broker_id: int, connection: BrokerConnection) -> None:
        self.broker_id = broker_id
        self.connection = connection
        self.requests: deque[ProduceInFlight] = deque()
        self._checked_at_ms = 0

    def problem(self, cluster: Cluster) -> str | None:
        """Why no answer is to be waited for any more; None while one is."""
        if not self.requests:
            return None
        oldest = self.requests[0]
        if oldest.deadline.passed:
            return f"{self.connection.name}: no answer to a Produce request in time"
        now_ms = monotonic_ms()
        sent_ms = oldest.deadline.at_ms - oldest.deadline.timeout_ms
        if now_ms < max(sent_ms + SILENT_MS, self._checked_at_ms + SILENT_CHECK_MS):
            return None
        self._checked_at_ms = now_ms
        if not cluster.has_moved(oldest.batches, self.broker_id, self.connection):
            return None
        return f"{self.connection.name}: it does not answer, and others lead by now"
