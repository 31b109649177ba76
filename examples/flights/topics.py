"""The demo's topics, through Headrace's own clients: create, describe, read back.

Nothing here is kept between calls; each answer is the brokers' present state.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from examples.flights import table
from examples.flights.failover import PartitionView, View
from examples.flights.schemas import TopicColumns
from storage_engine.client import (
    LATEST,
    Admin,
    BulkReader,
    HeadraceError,
    NewTopic,
    Producer,
    TopicPartition,
)
from storage_engine.client.closing import Closing
from storage_engine.client.retry import Retry
from storage_engine.net.deadline import Deadline

REPLICAS = 3

MARKERS_WAIT_MS = 30_000


class Topics(Closing):
    """A few topics of a cluster."""

    def __init__(
        self, config: Mapping[str, str], topics: Mapping[str, TopicColumns], partitions: int
    ) -> None:
        """`config`: how to connect; `partitions`: how many each topic has."""
        self._config = config
        self._topics = topics
        self._partitions = partitions
        self._admin = Admin(config)

    def create(self) -> None:
        """Creates them. The data is of 2013: retention by time would delete it at once."""
        for name, columns in self._topics.items():
            topic = NewTopic(
                name=name,
                partitions=self._partitions,
                replication_factor=REPLICAS,
                configs={"retention.ms": "-1"} | (table.SETTINGS if name == table.TOPIC else {}),
            )
            self._admin.create_topics([topic], schema=columns.ddl, key=columns.key)

    def view(self) -> View:
        """Leader and in-sync replicas of every partition."""
        return {
            TopicPartition(name, number): PartitionView(
                leader=partition.leader, in_sync=tuple(partition.isr)
            )
            for name, topic in self._admin.describe_topics(self._topics).items()
            for number, partition in topic.partitions.items()
        }

    def ends(self, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        """End offsets, exclusive, by topic and partition, in the form of the stream's progress."""
        return {
            topic: {str(part.partition): offset for part, offset in self._ends(topic).items()}
            for topic in topics
        }

    def tell_time(self, topics: Iterable[str], timestamp_ms: int) -> None:
        """Writes a row to each topic that has nothing but this time, and a key, which it must."""
        time = pa.array([timestamp_ms], pa.timestamp("ms", "UTC"))
        with Producer(self._config) as producer:
            for topic in topics:
                row = {"origin": [""], self._topics[topic].time: time, "_timestamp": time}
                producer.send_table(topic, pa.table(row))

    def read(self, topic: str) -> pa.Table:
        """Every committed row of the topic, those of a partition in the order of their offsets.
        HeadraceError while a transaction is open."""
        self._wait_for_markers(topic)
        with BulkReader(self._config) as reader:
            rows = (batch for split in reader.splits([topic]) for batch in reader.read(split))
            return pa.Table.from_batches(rows, self._topics[topic].arrow)

    def _wait_for_markers(self, topic: str) -> None:
        """The markers of the last micro-batch are written right after its commit."""
        retry = Retry(f"the end of {topic}", Deadline.after(MARKERS_WAIT_MS))
        while self._ends(topic) != self._ends(topic, isolation="read_committed"):
            retry.pause(HeadraceError("a transaction is open"))

    def _ends(
        self, topic: str, *, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        parts = [TopicPartition(topic, number) for number in range(self._partitions)]
        found = self._admin.list_offsets(dict.fromkeys(parts, LATEST), isolation=isolation)
        return {part: offset or 0 for part, offset in found.items()}

    def close(self) -> None:
        """Closes the connections."""
        self._admin.close()
