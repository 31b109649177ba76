"""Consumers that meet in ZooKeeper, of a cluster whose own ZooKeeper lets in brokers alone: they
meet in another one, and ask the brokers for topics and partitions."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import FEW_GROUPS, wait_until, zookeeper_for
from storage_engine.client import Admin, ConsumerConnector, HeadraceError, NewTopic, Producer
from storage_engine.client.settings import read_settings_file
from storage_engine.core.errors import AuthenticationError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster

RECORDS = 100
REQUEST = UpRequest(brokers=1, port=0, settings=FEW_GROUPS, is_secure=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with LocalCluster.running(tmp_path_factory.mktemp("secure"), REQUEST) as running:
        yield running


@pytest.fixture(scope="module")
def meeting_point(tmp_path_factory) -> Iterator[str]:
    with zookeeper_for(tmp_path_factory.mktemp("meeting") / "zookeeper") as connect:
        yield connect


def settings(cluster: LocalCluster) -> dict[str, str]:
    return read_settings_file(cluster.directory / "admin.properties")


def fill(cluster: LocalCluster, topic: str, numbers: range) -> None:
    with Producer(settings(cluster)) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number)


class Reader:
    """A member with one stream, read by a thread."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.seen: list[int] = []
        self.partitions: set[int] = set()
        self._connector = ConsumerConnector(
            config,
            on_assigned=lambda taken: self.partitions.update(tp.partition for tp in taken),
            on_revoked=lambda gone: self.partitions.difference_update(tp.partition for tp in gone),
        )
        (stream,) = self._connector.create_message_streams({topic: 1})[topic]
        self._thread = threading.Thread(
            target=lambda: self.seen.extend(int(each.value) for each in stream)
        )
        self._thread.start()

    def close(self) -> None:
        self._connector.shutdown()
        self._thread.join(60)


def seen(readers: list[Reader]) -> set[int]:
    return {number for each in readers for number in each.seen}


def test_members_share_partitions_also_those_that_are_added(cluster, meeting_point):
    config = {
        **settings(cluster),
        "zookeeper.connect": meeting_point,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": "500",
    }
    with Admin(settings(cluster)) as admin, contextlib.ExitStack() as stack:
        admin.create_topics([NewTopic(name="t", partitions=4, replication_factor=1)])
        fill(cluster, "t", range(RECORDS))
        readers = [Reader(config, "t") for _ in range(2)]
        for each in readers:
            stack.callback(each.close)
        wait_until(lambda: sorted(len(each.partitions) for each in readers) == [2, 2], "they share")
        wait_until(lambda: seen(readers) == set(range(RECORDS)), "all is read")
        admin.create_partitions({"t": 6})
        wait_until(
            lambda: sorted(len(each.partitions) for each in readers) == [3, 3], "they share six"
        )
        fill(cluster, "t", range(RECORDS, 2 * RECORDS))
        wait_until(lambda: seen(readers) == set(range(2 * RECORDS)), "the rest is read")
        readers[0].close()
        wait_until(lambda: len(readers[1].partitions) == 6, "the other one takes over")


def test_who_has_no_certificate_is_told_in_one_line(cluster):
    config = {"zookeeper.connect": cluster.state.zookeeper, "group.id": "g"}
    config |= {"zookeeper.connection.timeout.ms": "1500"}
    line = "speaks TLS alone, as that of a secured cluster does for its brokers"
    with ConsumerConnector(config) as connector, pytest.raises(HeadraceError, match=line) as told:
        connector.create_message_streams({"t": 1})
    assert "\n" not in str(told.value)
    authority = str(Path(cluster.directory) / "tls" / "zookeeper" / "ca.pem")
    tls = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": authority}
    refused = "no TLS with ZooKeeper at .*certificate"
    with (
        ConsumerConnector(config | tls) as connector,
        pytest.raises(HeadraceError, match=refused) as told,
    ):
        connector.create_message_streams({"t": 1})
    assert "\n" not in str(told.value)


def test_a_wrong_password_is_told_before_the_group_is_joined(cluster, meeting_point):
    config = {**settings(cluster), "zookeeper.connect": meeting_point, "group.id": "wrong"}
    config |= {"sasl.password": "wrong"}
    with ConsumerConnector(config) as connector, pytest.raises(AuthenticationError):
        connector.create_message_streams({"t": 1})
