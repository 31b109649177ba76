"""A Spark session and a cluster for the tests of the connector, each started once, and foreign
clients that judge what it reads and writes.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from storage_engine.tools.cluster_plan import UpRequest
from storage_engine.tools.local_cluster import LocalCluster

DEADLINE_S = 60.0

# Retention that a test can wait for.
CLUSTER_SETTINGS = (("log.retention.check.interval.ms", "200"),)


def new_session(name: str = "headrace-tests") -> SparkSession:
    """Two cores, no web interface, few shuffle partitions."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def spark():
    """The session of all Spark tests of a run: it takes seconds to start."""
    session = new_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory):
    """Three brokers for all Spark tests; each test makes topics of its own."""
    request = UpRequest(brokers=3, port=0, settings=CLUSTER_SETTINGS)
    with LocalCluster.running(tmp_path_factory.mktemp("spark-cluster"), request) as cluster:
        yield cluster


@pytest.fixture
def topic():
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


def create_topic(servers: str, topic: str, partitions: int = 2, **config: str) -> None:
    """Replicated to all three brokers; dots in a setting's name are written as underscores."""
    settings = {name.replace("_", "."): text for name, text in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=settings)
    admin.create_topics([new])[topic].result(timeout=30)


def produce(servers: str, topic: str, records: Iterable[dict]) -> None:
    """By librdkafka, acknowledged by all; a record has the arguments of its `produce`."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5})
    failures = []
    for record in records:
        producer.produce(
            topic, on_delivery=lambda error, _: error and failures.append(error), **record
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []


def consume(servers: str, topic: str) -> list[Message]:
    """All records that are there now, by librdkafka, partition after partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "judge", "enable.auto.commit": False}
    )
    messages = []
    try:
        for partition in sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, low)])
            position = low
            deadline = time.monotonic() + DEADLINE_S
            while position < high:
                assert time.monotonic() < deadline, f"{topic}-{partition} stops at {position}"
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    messages.append(message)
                    position = message.offset() + 1
    finally:
        consumer.close()
    return messages


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Polls; AssertionError that says what did not happen."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.05)


def last_line(error: BaseException) -> str:
    """What the user reads last of an error that Spark passes on: the connector's own line."""
    lines = [line.strip() for line in str(error).splitlines() if "connector.errors." in line]
    return lines[-1].split(": ", 1)[1]
