"""A stream stores how far it has read in a group, where lag tools see it, and goes on whatever
becomes of the group's coordinator.
"""

import contextlib

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from connector.connections import close_all
from connector.options.source_options import parse_source_options
from connector.source.group_commits import COMMIT_TIMEOUT_MS
from connector.source.stream_reader import HeadraceStreamReader
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    DEADLINE_S,
    create_topic,
    wait_until,
)
from integration_tests.support.spark_support import produce
from storage_engine.core.transactions.transaction_state import state_partition


@pytest.fixture(scope="module")
def cluster(cluster):
    yield cluster
    close_all()


def _reader(cluster, topic, **options):
    named = {"bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    return HeadraceStreamReader(
        parse_source_options(named | {"startingOffsets": "earliest"} | options)
    )


def _read_all(reader, start):
    """Where the last batch ends, and how many rows there were; plans on as Spark does when idle."""
    rows = 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for task in reader.partitions(start, end):
            rows += sum(batch.num_rows for batch in reader.read(task))
        start = end
    return start, rows


def _committed(cluster, group, topic):
    """By partition, as a tool that we did not write sees it; -1001 for none."""
    with contextlib.closing(
        Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    ) as tool:
        wanted = [TopicPartition(topic, partition) for partition in range(2)]
        return [each.offset for each in tool.committed(wanted, timeout=DEADLINE_S)]


def _produce(cluster, topic, count):
    for partition in range(2):
        produce(
            cluster.bootstrap_servers,
            topic,
            [{"value": b"v", "partition": partition} for _ in range(count)],
        )


def test_a_lag_tool_sees_an_idle_stream_at_the_end_of_the_log(cluster, topic):
    create_topic(cluster, topic, partitions=2)
    _produce(cluster, topic, 5)
    reader = _reader(cluster, topic, **{"kafka.group.id": topic})
    try:
        _, rows = _read_all(reader, reader.initialOffset())
        assert rows == 10
        wait_until(lambda: _committed(cluster, topic, topic) == [5, 5], "the group knows the end")
    finally:
        reader.stop()


def test_a_query_with_a_prefix_has_a_group_of_its_own(cluster, topic):
    create_topic(cluster, topic, partitions=2)
    _produce(cluster, topic, 3)
    reader = _reader(cluster, topic, groupIdPrefix=topic)
    try:
        end, _ = _read_all(reader, reader.initialOffset())
        wait_until(
            lambda: _committed(cluster, f"{topic}-{end['@query']}", topic) == [3, 3],
            "the group knows the end",
        )
    finally:
        reader.stop()


def test_a_stream_reads_on_while_the_coordinator_of_its_group_is_dead(cluster, topic):
    create_topic(cluster, topic, partitions=2)
    _produce(cluster, topic, 5)
    reader = _reader(cluster, topic, **{"kafka.group.id": topic})
    try:
        at, _ = _read_all(reader, reader.initialOffset())
        wait_until(lambda: _committed(cluster, topic, topic) == [5, 5], "the group knows the end")
        coordinator = (
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            .list_topics("__consumer_offsets", timeout=DEADLINE_S)
            .topics["__consumer_offsets"]
            .partitions[state_partition(topic, COORDINATOR_PARTITIONS)]
            .leader
        )
        cluster.kill_broker(coordinator)
        try:
            _produce(cluster, topic, 5)
            at, rows = _read_all(reader, at)
            assert rows == 10
            wait_until(
                lambda: _committed(cluster, topic, topic) == [10, 10],
                "the new coordinator is told",
                timeout_s=DEADLINE_S + COMMIT_TIMEOUT_MS / 1000,
            )
        finally:
            cluster.start_broker(coordinator)
    finally:
        reader.stop()
