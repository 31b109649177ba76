"""A fetch that one leader has not answered yet."""

import time

from storage_engine.client.cluster import SILENT_MS
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.fetching.fetch_cursor import Cursor
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms


class FetchInFlight:
    """Who is asked for which partitions, and until when."""

    __slots__ = ("begun_ns", "by_id", "check_at_ms", "connection", "cursors", "deadline")

    def __init__(
        self,
        connection: BrokerConnection,
        cursors: dict[TopicPartition, Cursor],
        deadline: Deadline,
        *,
        by_id: bool,
        max_wait_ms: int,
    ) -> None:
        self.connection = connection
        self.cursors = cursors
        self.deadline = deadline
        self.by_id = by_id
        """Whether it names topics by their ids."""
        self.begun_ns = time.perf_counter_ns()
        self.check_at_ms = monotonic_ms() + max_wait_ms + SILENT_MS
        """When to look for other leaders, since this one may hang."""
