"""A Spark session and a cluster for the tests of the connector, and foreign clients that judge what
it reads and writes."""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from connector.spark_version import limits_micro_batches
from integration_tests.support.background import Background
from integration_tests.support.client_files import settings_for
from integration_tests.support.cluster_support import DEADLINE_S, END_TOLD_MS
from integration_tests.support.steady_producer import consumer_and_ends

QUERY_TIMEOUT_S = 180
"""For a query that reads what there is: on a busy machine Spark alone takes most of a minute."""

PRODUCER_TIMEOUT_MS = 300_000

NO_WORKER = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a busy machine may need."""

needs_limits = pytest.mark.skipif(
    not limits_micro_batches(), reason="this Spark limits no micro-batch"
)


def per_batch(records: int) -> dict[str, int]:
    """Options for micro-batches of so many records. A Spark that limits none makes one of all that
    was written since the last."""
    return {"maxOffsetsPerTrigger": records} if limits_micro_batches() else {}


def new_session(
    name: str = "headrace-tests",
    *,
    master: str = "local[2]",
    settings: Iterable[tuple[str, str]] = (),
) -> SparkSession:
    """Two cores, no web interface, few shuffle partitions. `local[2,4]` runs a task up to four
    times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    for key, value in settings:
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def produce(
    servers: str, topic: str, records: Iterable[dict[str, Any]], *, batch_records: int = 10_000
) -> None:
    """By librdkafka, acknowledged by all; a record has the arguments of its `produce`."""
    produce_apart(servers, topic, [records], batch_records=batch_records)


def produce_apart(
    servers: str,
    topic: str,
    groups: Iterable[Iterable[dict[str, Any]]],
    *,
    batch_records: int = 10_000,
) -> None:
    """Records of several groups, none of which share a batch, by one client: it takes half a second
    to get its number. Idempotent: else a batch that is refused and sent again comes behind those
    that were sent after it."""
    settings: dict[str, Any] = {**settings_for(servers), "linger.ms": 5}
    settings |= {"enable.idempotence": True, "batch.num.messages": batch_records}
    producer = Producer(settings)
    failures = []

    def note(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    for records in groups:
        for record in records:
            producer.produce(topic, on_delivery=note, **record)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
    assert failures == []


class IdProducer(Background):
    """Writes the ids 0, 1, … as values, to one partition after the other, until the end of the
    block, which waits until all are acknowledged."""

    def __init__(self, servers: str, topic: str, *, per_second: int) -> None:
        super().__init__()
        self.acknowledged = 0
        self._failures: list[str] = []
        self._topic = topic
        self._per_second = per_second
        self._producer = Producer(
            {
                **settings_for(servers),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": PRODUCER_TIMEOUT_MS,
                "retry.backoff.max.ms": 300,
                "log_level": 0,
            }
        )

    def check(self) -> None:
        super().check()
        assert self._failures == []

    def _work(self) -> None:
        ids = itertools.count()
        while not self._stop.wait(0.05):
            for number in itertools.islice(ids, max(1, self._per_second // 20)):
                self._write(number)
            self._producer.poll(0)
        assert self._producer.flush(PRODUCER_TIMEOUT_MS / 1000) == 0

    def _write(self, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % 2, on_delivery=self._note
                )
            except BufferError:
                # The brokers take nothing for now.
                self._producer.poll(0.1)
            else:
                return

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(str(error))


def consume(servers: str, topic: str, *, isolation: str = "read_committed") -> list[Message]:
    """All records that are there now, by librdkafka, partition after partition. With read_committed
    it waits until no transaction is open below the end."""
    messages: list[Message] = []
    with contextlib.closing(_consumer(servers)) as ends:
        partitions = sorted(ends.list_topics(topic, timeout=30).topics[topic].partitions)
    bounds = {partition: _bounds(servers, topic, partition) for partition in partitions}
    with contextlib.closing(_consumer(servers, isolation)) as consumer:
        for partition, (low, high) in bounds.items():
            consumer.assign([TopicPartition(topic, partition, low)])
            deadline = time.monotonic() + DEADLINE_S
            position = low
            while position < high:
                assert time.monotonic() < deadline, f"{topic}-{partition} stops at {position}"
                message = consumer.poll(1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Beyond markers and aborted records, of which no message tells.
                    position = message.offset() or 0
    return messages


def first_offset(servers: str, topic: str) -> int:
    """The first offset that partition 0 still has."""
    low, _ = _bounds(servers, topic, 0)
    return low


def _bounds(servers: str, topic: str, partition: int) -> tuple[int, int]:
    """The first and the next offset, with transactions that are open."""
    settings = _settings(servers, "read_uncommitted")
    consumer, low, high = consumer_and_ends(settings, TopicPartition(topic, partition))
    consumer.close()
    return low, high


def _consumer(servers: str, isolation: str = "read_uncommitted") -> Consumer:
    return Consumer(_settings(servers, isolation))


def _settings(servers: str, isolation: str) -> dict[str, Any]:
    return {
        **settings_for(servers),
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": END_TOLD_MS,
        "isolation.level": isolation,
    }


def description_of(query: str, run: str, batch: int) -> str:
    """What Spark gives as the description of the jobs of a micro-batch; its query has no name."""
    return f"\nid = {query}\nrunId = {run}\nbatch = {batch}"


def last_line(error: BaseException) -> str:
    """What the user reads last of an error that Spark passes on: the connector's own line."""
    lines = [line.strip() for line in str(error).splitlines() if "connector.errors." in line]
    return lines[-1].split(": ", 1)[1]
