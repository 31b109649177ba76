"""The connection to one leader, with the Produce requests in flight on it.

Answers come in the order of the requests, so each answer is that of the oldest request.
"""

import time
from collections import deque

from storage_engine.client.connection import BrokerConnection
from storage_engine.client.producer.produce_queue import PendingBatch
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline


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

    __slots__ = ("broker_id", "connection", "requests")

    def __init__(self, broker_id: int, connection: BrokerConnection) -> None:
        self.broker_id = broker_id
        self.connection = connection
        self.requests: deque[ProduceInFlight] = deque()
