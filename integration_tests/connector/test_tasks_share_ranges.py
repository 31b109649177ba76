"""Tasks that read several partitions, against real brokers: leaders that are killed under them,
partitions without a leader, and topics that are deleted while their ranges wait.
"""

import time
from collections import defaultdict

import pytest

from connector.connections import close_all
from connector.errors import ConnectorError, DataLossError
from connector.options.source_options import parse_source_options
from connector.source import source_metadata
from connector.source.batch_reader import HeadraceBatchReader
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    wait_until,
)
from integration_tests.support.spark_support import produce

PARTITIONS = 6
RECORDS = 8_000
BATCH_RECORDS = 300
"""Of a batch, which a fetch takes whole: when a task has begun, most is still to be fetched."""
"""Of each partition, 100 B each: several MiB for a task, which yields them by one."""

SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": "16384"}
IN_ONE_TASK = {"minRecordsPerPartition": "1000000"}


@pytest.fixture(scope="module", autouse=True)
def _connections():
    yield
    close_all()


@pytest.fixture
def little_patience(monkeypatch):
    """For what is lost for good."""
    monkeypatch.setattr(source_metadata, "GONE_PATIENCE_MS", 300)


def _filled(cluster, topic, *, partitions=PARTITIONS, replication_factor=3):
    create_topic(cluster, topic, partitions=partitions, replication_factor=replication_factor)
    produce(
        cluster.bootstrap_servers,
        topic,
        (
            {"value": b"%0100d" % number, "partition": number % partitions}
            for number in range(RECORDS * partitions)
        ),
        batch_records=BATCH_RECORDS,
    )


class Task:
    """The one task that reads topics."""

    def __init__(self, cluster, topics, **options):
        given = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": topics,
            "kafka.metadata.max.age.ms": "500",
            "kafkaConsumer.pollTimeoutMs": "30000",
        }
        reader = HeadraceBatchReader(parse_source_options(given | IN_ONE_TASK | options))
        (partition,) = reader.partitions()
        self.ranges = partition.value
        self._rows = reader.read(partition)
        self.values = defaultdict(list)

    def read(self, batches=None):
        """So many Arrow record batches, or all that are left."""
        for number, batch in enumerate(self._rows, 1):
            for row in batch.select(["topic", "partition", "value"]).to_pylist():
                self.values[row["topic"], row["partition"]].append(int(row["value"]))
            if number == batches:
                return

    @property
    def rows(self):
        return sum(map(len, self.values.values()))


def _expected(partition, partitions=PARTITIONS):
    return list(range(partition, RECORDS * partitions, partitions))


def test_a_leader_killed_in_the_middle_of_a_task_of_six_ranges_costs_and_doubles_nothing(
    cluster, topic
):
    _filled(cluster, topic)
    task = Task(cluster, topic, **SMALL_FETCHES)
    assert len(task.ranges) == PARTITIONS
    task.read(batches=1)
    assert task.rows < RECORDS * PARTITIONS / 2
    victim = leader_of(admin(cluster), topic, 0)
    cluster.kill_broker(victim)
    try:
        task.read()
    finally:
        cluster.start_broker(victim)
    assert task.values == {(topic, each): _expected(each) for each in range(PARTITIONS)}


def test_a_partition_without_a_leader_is_an_error_after_all_its_siblings_are_read(cluster, topic):
    _filled(cluster, topic, replication_factor=1)
    task = Task(cluster, topic, **{"kafkaConsumer.pollTimeoutMs": "3000"}, **SMALL_FETCHES)
    victim = leader_of(admin(cluster), topic, 0)
    led = {each for each in range(PARTITIONS) if leader_of(admin(cluster), topic, each) == victim}
    assert 0 < len(led) < PARTITIONS
    cluster.kill_broker(victim)
    started = time.monotonic()
    try:
        with pytest.raises(ConnectorError, match=r"^\[TIMED_OUT\] "):
            task.read()
    finally:
        cluster.start_broker(victim)
    assert time.monotonic() - started < 90
    for each in range(PARTITIONS):
        if each not in led:
            assert task.values[topic, each] == _expected(each)
    # A retried task starts whole.
    again = Task(cluster, topic)
    again.read()
    assert again.values == {(topic, each): _expected(each) for each in range(PARTITIONS)}


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("begun", [False, True], ids=["before it begins", "while it reads"])
def test_a_topic_deleted_while_its_range_waits_in_a_shared_task_costs_no_other_a_record(
    cluster, topic, little_patience, fail, begun
):
    doomed = f"{topic}-doomed"
    for each in (topic, doomed):
        _filled(cluster, each, partitions=2)
    task = Task(cluster, f"{topic},{doomed}", failOnDataLoss=fail, **SMALL_FETCHES)
    assert len(task.ranges) == 4
    if begun:
        task.read(batches=1)
    client = admin(cluster)
    client.delete_topics([doomed], request_timeout=60)[doomed].result(90)
    wait_until(lambda: doomed not in client.list_topics(timeout=60).topics, "the topic is gone")
    if not begun:
        # Longer than the metadata of the process may be old.
        time.sleep(0.6)
    if fail == "true":
        with pytest.raises(DataLossError, match=f"{doomed}-[01], wanted from offset .* is gone"):
            task.read()
    else:
        task.read()
    for each in range(2):
        assert task.values[topic, each] == _expected(each, 2)
        read = task.values[doomed, each]
        assert read == _expected(each, 2)[: len(read)]
        assert begun or read == []
    lost = [each for each in range(2) if len(task.values[doomed, each]) < RECORDS]
    assert lost, "it was deleted too late"
