"""A cluster of release 0.1.0 is upgraded broker by broker: it works meanwhile, nothing is stored
that the release can't read before a feature is raised, and no feature is raised too early."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kazoo.client import KazooClient

from integration_tests.features.levels import wait_for_level
from integration_tests.features.mixed_cluster import MixedCluster, check_out, mixed_cluster
from integration_tests.support.cluster_support import DEADLINE_S, create_topic, wait_until
from integration_tests.support.command_line import fail, succeed

RELEASE = "0.1.0"
GROUP, TOPIC, PARTITIONS = "readers", "orders", 3
LAST = 3
"""The broker that is upgraded last."""


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The folder with the code of the release."""
    return check_out(RELEASE, tmp_path_factory.mktemp("release") / "code")


@pytest.fixture
def cluster(tmp_path, release) -> Iterator[MixedCluster]:
    """Three brokers of the release, with records and a group."""
    with mixed_cluster(tmp_path / "cluster") as made:
        made.start(1, 2, 3, code=release)
        create_topic(made, TOPIC, partitions=PARTITIONS)
        write(made, range(30))
        read_in_group(made, range(30))
        yield made


@pytest.fixture
def half_upgraded(cluster) -> MixedCluster:
    """Two of its brokers are of today."""
    for broker in (1, 2):
        cluster.restart(broker)
        cluster.wait_in_sync(TOPIC, PARTITIONS)
    return cluster


def write(cluster: MixedCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    failures = []
    for number in numbers:
        producer.produce(
            TOPIC,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def read_in_group(cluster: MixedCluster, numbers: range) -> None:
    """Read these, which the group has not read yet, and nothing else; commit its offsets."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": "6000",
        }
    )
    reader.subscribe([TOPIC])
    found: list[int] = []

    def is_read() -> bool:
        message = reader.poll(1.0)
        if message is not None and not message.error():
            found.append(int(message.value()))
        return len(found) >= len(numbers)

    wait_until(is_read, "the group has read all")
    assert reader.poll(0.5) is None
    assert sorted(found) == list(numbers)
    reader.commit(asynchronous=False)
    reader.close()


def committed(cluster: MixedCluster) -> int:
    """The sum of the group's offsets: the number of records that it has read."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP})
    partitions = [ConfluentPartition(TOPIC, number) for number in range(PARTITIONS)]
    found = reader.committed(partitions, timeout=DEADLINE_S)
    reader.close()
    return sum(each.offset for each in found)


def described(cluster: MixedCluster) -> dict:
    servers = cluster.bootstrap_servers
    rows = json.loads(succeed("features", "describe", "--bootstrap-server", servers, "--json"))
    return next(row for row in rows if row["feature"] == "group.version")


def every_record(cluster: MixedCluster) -> list[int]:
    """All that the topic holds, sorted."""
    servers = cluster.bootstrap_servers
    read = succeed("consume", TOPIC, "--bootstrap-server", servers, "--exit-at-end")
    return sorted(int(line) for line in read.splitlines())


def test_a_half_upgraded_cluster_works_and_raises_no_level_before_the_last_broker(
    half_upgraded, release
):
    cluster = half_upgraded
    write(cluster, range(30, 60))
    read_in_group(cluster, range(30, 60))
    row = described(cluster)
    assert (row["level"], row["highest"], row["held_back_by"]) == (0, 0, [LAST])
    if cluster.controller() == LAST:
        # It knows of no feature that could be raised.
        cluster.restart(LAST, release)
        cluster.wait_in_sync(TOPIC, PARTITIONS)
    servers = cluster.bootstrap_servers
    said = fail(
        "features", "upgrade", "--bootstrap-server", servers, "--feature", "group.version=1"
    )
    assert f"broker {LAST} supports level 0 only" in said

    cluster.restart(LAST)
    cluster.wait_in_sync(TOPIC, PARTITIONS)
    wait_for_level(cluster, 0)
    raised = succeed("features", "upgrade", "--bootstrap-server", servers, "--all")
    assert "group.version is changed from level 0 to 1" in raised
    wait_for_level(cluster, 1)
    write(cluster, range(60, 90))
    read_in_group(cluster, range(60, 90))
    assert committed(cluster) == 90


def test_a_cluster_is_rolled_back_with_its_records_and_groups(half_upgraded, release):
    cluster = half_upgraded
    cluster.restart(LAST)
    cluster.wait_in_sync(TOPIC, PARTITIONS)
    write(cluster, range(30, 60))
    read_in_group(cluster, range(30, 60))
    for broker in (1, 2, 3):
        cluster.restart(broker, release)
        cluster.wait_in_sync(TOPIC, PARTITIONS)
    assert committed(cluster) == 60
    write(cluster, range(60, 90))
    read_in_group(cluster, range(60, 90))
    assert committed(cluster) == 90
    assert every_record(cluster) == list(range(90))


def test_a_cluster_of_this_version_has_no_place_for_an_earlier_broker(tmp_path, release):
    with mixed_cluster(tmp_path / "cluster") as cluster:
        cluster.start(1, 2, 3)
        wait_for_level(cluster, 1)
        create_topic(cluster, TOPIC, partitions=PARTITIONS)
        other = cluster.controller() % 3 + 1
        cluster.stop(other)
        cluster.left_out.add(other)
        cluster.begin(other, release)
        line = f"broker={other} epoch="

        def is_told() -> bool:
            controller = cluster.log(cluster.controller()).read_text()
            return any(line in each and "left out" in each for each in controller.splitlines())

        wait_until(is_told, "the controller names the broker")
        write(cluster, range(30))
        cluster.left_out.clear()
        cluster.restart(other)
        cluster.wait_in_sync(TOPIC, PARTITIONS)
        wait_for_level(cluster, 1)


def test_a_broker_that_does_not_support_the_levels_does_not_start(tmp_path):
    with mixed_cluster(tmp_path / "cluster") as cluster:
        cluster.start(1)
        cluster.stop(1)
        zookeeper = KazooClient(cluster.zookeeper_connect)
        zookeeper.start()
        levels_of_later = {"version": 2, "status": 1, "features": {}}
        levels_of_later["features"] = {"later.version": {"max_version_level": 3}}
        zookeeper.set("/feature", json.dumps(levels_of_later).encode())
        zookeeper.stop()
        zookeeper.close()
        assert cluster.begin(1).wait(DEADLINE_S) == 1
        said = cluster.last_words(1)
        assert said.startswith("headrace: the cluster uses later.version at level 3, and this ")
        assert "headrace features downgrade --feature later.version=0" in said
