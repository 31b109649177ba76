"""Clients for Python beside one another on one cluster, for `bench produce` and `bench consume`.

Each client does the same work with its defaults, by turns, in one process; confluent-kafka is
measured where it is installed.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterable

import pyarrow as pa

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS, Goal, Result, Step, compare, seconds
from storage_engine.client import Consumer, Producer, TopicPartition
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tools.arguments import add_json
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import print_results

RECORD_BYTES = 100
PARTITIONS = 4
TOPIC = "records"
TABLE_TIMES = 5
"""The factor for records in a round with tables, which would else last for milliseconds."""
HAS_CONFLUENT = importlib.util.find_spec("confluent_kafka") is not None

Comparison = tuple[str, Step, Step, Goal | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of both benchmarks."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--records", 200_000, f"records of {RECORD_BYTES} bytes in a round"),
        ("--rounds", 3, "rounds of each measurement"),
    )
    add_json(parser)


def run(args: argparse.Namespace, comparisons: Callable[["Clients"], Iterable[Comparison]]) -> int:
    """Print the comparisons, on a broker of their own."""
    with scratch(args.dir) as folder:
        request = UpRequest(brokers=1, port=0)
        with LocalCluster.running(folder, request) as cluster:
            clients = Clients(cluster.bootstrap_servers, args.records)
            results: list[Result] = []
            for what, ours, theirs, goal in comparisons(clients):
                print(what, file=sys.stderr, flush=True)
                results.append(compare(what, ours, theirs, rounds=args.rounds, goal=goal))
    print_results(COLUMNS, results, as_json=args.json)
    return 0


class Clients:
    """Each method does its work once, and returns records a second."""

    def __init__(self, bootstrap_servers: str, records: int) -> None:
        self._servers = bootstrap_servers
        self._records = records
        self._values = [b"%0*d" % (RECORD_BYTES, number) for number in range(records)]
        self._table = pa.table({"value": pa.array(self._values, pa.binary())})
        with Cluster(bootstrap_servers) as cluster:
            create_topic(cluster, TOPIC, partitions=PARTITIONS, replication_factor=1)

    def _rate(self, work: Callable[[], None]) -> float:
        return self._records / seconds(work)

    # --- produce ---

    def send(self) -> float:
        def work() -> None:
            with Producer({"bootstrap.servers": self._servers}) as producer:
                for value in self._values:
                    producer.send(TOPIC, value)

        return self._rate(work)

    def send_table(self) -> float:
        table = self._long_table()

        def work() -> None:
            with Producer({"bootstrap.servers": self._servers}) as producer:
                producer.send_table(TOPIC, table)

        return TABLE_TIMES * self._rate(work)

    def _long_table(self) -> pa.Table:
        return pa.concat_tables([self._table] * TABLE_TIMES).combine_chunks()

    def encoded_batches(self) -> float:
        """Send batches that are encoded before the clock starts: the limit of `send_table`."""
        column = self._long_table().column("value")
        batches = encode_batches(column, batch_bytes=256 << 10)

        def work() -> None:
            with Cluster(self._servers) as cluster, BatchWriter(cluster) as writer:
                for number, batch in enumerate(batches):
                    writer.append(TopicPartition(TOPIC, number % PARTITIONS), batch)

        return TABLE_TIMES * self._rate(work)

    def kafka_python_send(self) -> float:
        from kafka import KafkaProducer

        def work() -> None:
            producer = KafkaProducer(bootstrap_servers=self._servers.split(","), linger_ms=5)
            for value in self._values:
                producer.send(TOPIC, value)
            producer.flush()
            producer.close()

        return self._rate(work)

    def confluent_send(self) -> float:
        from confluent_kafka import Producer as ConfluentProducer

        def work() -> None:
            producer = ConfluentProducer(
                {
                    "bootstrap.servers": self._servers,
                    "queue.buffering.max.messages": self._records + 1,
                }
            )
            for value in self._values:
                producer.produce(TOPIC, value)
            producer.flush()

        return self._rate(work)

    # --- consume ---

    def fill(self) -> None:
        """Have at least as many records in the topic as are read in a round."""
        self.send_table()

    def poll(self) -> float:
        def work() -> None:
            with self._consumer() as consumer:
                left = self._records
                while left > 0:
                    left -= len(consumer.poll())

        return self._rate(work)

    def iterate(self) -> float:
        def work() -> None:
            with self._consumer() as consumer:
                for _ in zip(range(self._records), consumer, strict=False):
                    pass

        return self._rate(work)

    def poll_table(self) -> float:
        def work() -> None:
            with self._consumer() as consumer:
                left = self._records
                while left > 0:
                    left -= consumer.poll_table().num_rows

        return self._rate(work)

    def _consumer(self) -> Consumer:
        consumer = Consumer({"bootstrap.servers": self._servers, "auto.offset.reset": "earliest"})
        consumer.assign(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
        return consumer

    def kafka_python_poll(self) -> float:
        from kafka import KafkaConsumer
        from kafka import TopicPartition as Theirs

        def work() -> None:
            consumer = KafkaConsumer(
                bootstrap_servers=self._servers.split(","),
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            consumer.assign([Theirs(TOPIC, number) for number in range(PARTITIONS)])
            left = self._records
            while left > 0:
                left -= sum(map(len, consumer.poll(1_000).values()))
            consumer.close()

        return self._rate(work)

    def confluent_consume(self) -> float:
        from confluent_kafka import OFFSET_BEGINNING
        from confluent_kafka import Consumer as ConfluentConsumer
        from confluent_kafka import TopicPartition as Theirs

        settings: dict[str, str | bool] = {
            "bootstrap.servers": self._servers,
            "group.id": "unused",
            "enable.auto.commit": False,
        }

        def work() -> None:
            consumer = ConfluentConsumer(settings)
            parts = [Theirs(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
            consumer.assign(parts)
            left = self._records
            while left > 0:
                for message in consumer.consume(500, 1.0):
                    if message.error() is None:
                        message.value()
                        left -= 1
            consumer.close()

        return self._rate(work)
