"""Finding brokers, topics, leaders and offsets (R-CLI1)."""

import os
import socket
import time
from functools import partial

import pytest

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.spec import VersionRange
from storage_engine.tests.client.batches import numbered_batch
from storage_engine.tests.client.fake_cluster import Fault

T0 = TopicPartition("t", 0)


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_metadata_names_brokers_topics_and_leaders(fake, cluster):
    fake.add_topic("t", [1, 2, 3])
    view = cluster.metadata()
    assert sorted(view.brokers) == [1, 2, 3]
    assert view.cluster_id == "fake"
    assert view.controller_id == 1
    assert [p.leader for p in view.topics["t"].partitions.values()] == [1, 2, 3]


def test_metadata_of_a_topic_that_does_not_exist_tells_so_at_once(fake, cluster):
    fake.add_topic("t", [1])
    view = cluster.metadata(["t", "nope"])
    assert list(view.topics) == ["t"]
    assert view.errors == {"nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_metadata_young_enough_is_not_asked_for_again(fake, cluster):
    fake.add_topic("t", [1])
    fake.add_topic("u", [1])
    cluster.metadata(["t"], max_age_ms=60_000)
    asked = fake.count("Metadata")
    cluster.metadata(["t"], max_age_ms=60_000)
    assert fake.count("Metadata") == asked
    cluster.metadata(["t"])
    cluster.metadata(["t", "u"], max_age_ms=60_000)
    assert fake.count("Metadata") == asked + 2
    cluster.metadata(max_age_ms=60_000)
    cluster.metadata(max_age_ms=60_000)
    cluster.metadata(["u"], max_age_ms=60_000)
    assert fake.count("Metadata") == asked + 3


def test_no_broker_is_one_line_that_names_every_address_and_comes_in_time():
    ports = [refused_port(), refused_port()]
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    started = time.monotonic()
    with pytest.raises(KafkaError) as raised:
        Cluster(servers, bootstrap_timeout_ms=300).metadata()
    assert time.monotonic() - started < 30
    text = str(raised.value)
    assert "\n" not in text
    assert all(f"127.0.0.1:{port} (Connection refused)" in text for port in ports)
    assert "check bootstrap.servers" in text
    assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_an_address_without_a_broker_is_passed_over(fake):
    servers = f"127.0.0.1:{refused_port()},{fake.bootstrap_servers}"
    for _ in range(5):
        with Cluster(servers) as cluster:
            assert len(cluster.metadata([]).brokers) == 3


def test_a_bootstrap_broker_that_comes_up_a_little_later_is_found(fake):
    port = fake.stop_broker(1)
    for broker_id in (2, 3):
        fake.stop_broker(broker_id)
    fake.loop.call_soon_threadsafe(
        fake.loop.call_later, 0.3, lambda: fake.loop.create_task(_start(fake, port))
    )
    with Cluster(f"127.0.0.1:{port}", bootstrap_timeout_ms=5000) as cluster:
        assert list(cluster.metadata([]).brokers) == [1]


async def _start(fake, port):
    from storage_engine.net.server import Server
    from storage_engine.net.serving import ServedListener

    handle = partial(fake._handle, 1)
    server = Server(fake.loop, [ServedListener(host="127.0.0.1", port=port, handle=handle)])
    await server.start()
    fake.servers[1] = server


@pytest.mark.parametrize(
    "servers", ["", " , ", "localhost", "localhost:", ":9092", "h:0", "h:70000", "h:x", "a:b:1"]
)
def test_a_wrong_bootstrap_list_is_refused_by_name(servers):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Cluster(servers)


def test_an_ipv6_address_is_written_in_brackets():
    Cluster("[::1]:9092, localhost:9093")


def test_a_topic_that_does_not_exist_is_an_error_that_names_it_after_a_while(cluster):
    started = time.monotonic()
    with pytest.raises(KafkaError, match="topic 'nope' does not exist on 127") as raised:
        cluster.leader(TopicPartition("nope", 0))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert 0.3 <= time.monotonic() - started < 4.5


def test_a_topic_that_appears_meanwhile_is_found(fake, cluster):
    fake.loop.call_soon_threadsafe(fake.loop.call_later, 0.1, lambda: fake.add_topic("t", [2]))
    assert cluster.leader(T0).broker_id == 2


def test_a_partition_that_does_not_exist_is_an_error_that_says_how_many_there_are(fake, cluster):
    fake.add_topic("t", [1, 2])
    with pytest.raises(KafkaError, match="topic 't' has 2 partitions, so there is no partition 7"):
        cluster.leader(TopicPartition("t", 7))


def test_a_leader_is_waited_for(fake, cluster):
    fake.add_topic("t", [-1])
    fake.loop.call_soon_threadsafe(fake.loop.call_later, 0.2, lambda: fake.move_leader("t", 0, 3))
    leader = cluster.leader(T0)
    assert (leader.broker_id, leader.epoch) == (3, 1)


def test_a_partition_without_a_leader_is_an_error_at_the_deadline(fake):
    fake.add_topic("t", [-1])
    with (
        Cluster(fake.bootstrap_servers, deadline_ms=300) as cluster,
        pytest.raises(DeadlineExceededError, match="t-0 has no leader"),
    ):
        cluster.leader(T0)


def test_offsets_come_from_all_leaders(fake, cluster):
    fake.add_topic("t", [1, 2, 3])
    fake.partition("t", 1).append(bytes(numbered_batch(0, record_count=5).data))
    partitions = [TopicPartition("t", number) for number in range(3)]
    assert list(cluster.list_offsets(dict.fromkeys(partitions, LATEST)).values()) == [0, 5, 0]
    assert list(cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)).values()) == [0, 0, 0]
    assert cluster.list_offsets({}) == {}


def test_offsets_are_asked_again_where_the_leader_has_moved_or_the_answer_was_lost(fake, cluster):
    fake.add_topic("t", [1, 2])
    cluster.metadata()
    fake.move_leader("t", 0, 3)
    faults = {2: Fault.DROP, 4: ErrorCode.LEADER_NOT_AVAILABLE}
    fake.fault = lambda asked: faults.get(asked.number) if asked.api == "ListOffsets" else None
    partitions = [TopicPartition("t", number) for number in range(2)]
    assert list(cluster.list_offsets(dict.fromkeys(partitions, LATEST)).values()) == [0, 0]


def test_a_lost_connection_to_any_broker_is_retried(fake, cluster):
    fake.add_topic("t", [1])
    fake.fault = lambda a: Fault.DROP if a.api == "Metadata" and a.number < 4 else None
    assert list(cluster.metadata().topics) == ["t"]


def test_a_broker_that_does_not_answer_is_an_error_at_the_deadline(fake):
    fake.fault = lambda asked: Fault.SILENCE if asked.api == "Metadata" else None
    started = time.monotonic()
    with (
        Cluster(fake.bootstrap_servers, request_timeout_ms=100, deadline_ms=400) as cluster,
        pytest.raises(DeadlineExceededError, match="no answer within"),
    ):
        cluster.metadata()
    assert time.monotonic() - started < 30


def test_the_newest_common_version_is_used(fake):
    fake.api_versions[METADATA.key] = VersionRange(3, 5)
    fake.api_versions[18] = VersionRange(0, 2)
    fake.add_topic("t", [1])
    with Cluster(fake.bootstrap_servers) as cluster:
        assert list(cluster.metadata().topics) == ["t"]
        connection = cluster.take(1, Deadline.after(1000))
        assert connection.version_for(METADATA) == 5
        connection.close()


def test_an_api_that_the_broker_does_not_serve_is_an_error_that_names_both(fake):
    fake.api_versions[METADATA.key] = VersionRange(100, 101)
    with (
        Cluster(fake.bootstrap_servers) as cluster,
        pytest.raises(UnsupportedVersionError, match="serves Metadata in versions 100-101"),
    ):
        cluster.metadata()


def test_connections_are_used_again(fake, cluster):
    fake.add_topic("t", [1])
    for _ in range(20):
        cluster.metadata()
        cluster.list_offsets({T0: LATEST})
    assert fake.count("ApiVersions") <= 2


def test_a_connection_that_the_broker_has_closed_meanwhile_is_replaced(fake, cluster):
    cluster.metadata()
    for broker_id in (1, 2, 3):
        fake.start_broker(broker_id, fake.stop_broker(broker_id))
    assert len(cluster.request(1, METADATA, MetadataRequest(topics=[])).brokers) == 3


def test_a_forked_child_opens_its_own_connections(fake, cluster):
    fake.add_topic("t", [1])
    cluster.metadata()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if list(cluster.metadata().topics) == ["t"] else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert list(cluster.metadata().topics) == ["t"]


def test_leaders_are_asked_for_offsets_at_once(fake, cluster, monkeypatch):
    fake.add_topic("t", [1, 2, 3])
    partitions = [TopicPartition("t", number) for number in range(3)]
    cluster.metadata(["t"])
    steps = []
    send, receive = BrokerConnection.send, BrokerConnection.receive

    def noted_send(self, spec, *rest, **named):
        if spec.name == "ListOffsets":
            steps.append("send")
        send(self, spec, *rest, **named)

    def noted_receive(self, deadline):
        steps.append("receive")
        return receive(self, deadline)

    cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    monkeypatch.setattr(BrokerConnection, "send", noted_send)
    monkeypatch.setattr(BrokerConnection, "receive", noted_receive)
    cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    assert steps == ["send"] * 3 + ["receive"] * 3


def test_one_flight_tells_metadata_and_both_ends_of_all_logs(fake, cluster):
    fake.add_topic("t", [1, 2, 3])
    fake.partition("t", 1).end_offset, fake.partition("t", 1).start_offset = 5, 2
    partitions = [TopicPartition("t", number) for number in range(3)]
    assert cluster.log_bounds(partitions) == ({}, {})
    cluster.metadata(["t"])
    asked = fake.count("Metadata"), fake.count("ListOffsets")
    bounds = cluster.log_bounds(partitions)
    assert [bounds.earliest[each] for each in partitions] == [0, 2, 0]
    assert [bounds.latest[each] for each in partitions] == [0, 5, 0]
    assert (fake.count("Metadata"), fake.count("ListOffsets")) == (asked[0] + 1, asked[1] + 6)
    fake.create_again("t", [1, 2, 3])
    cluster.log_bounds(partitions)
    assert cluster.view.topics["t"].topic_id == fake.topic_ids["t"]


def test_a_broker_that_fails_spoils_only_its_own_part_of_a_flight(fake, cluster):
    fake.add_topic("t", [1, 2])
    partitions = [TopicPartition("t", number) for number in range(2)]
    cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    drops = {"ListOffsets": Fault.DROP}
    fake.fault = lambda asked: drops.get(asked.api) if asked.broker_id == 1 else None
    bounds = cluster.log_bounds(partitions)
    assert bounds == ({partitions[1]: 0}, {partitions[1]: 0})
    fake.fault = lambda _: None
    assert cluster.list_offsets(dict.fromkeys(partitions, LATEST)) == dict.fromkeys(partitions, 0)


def test_an_answer_is_not_taken_for_the_next_requests_after_one_that_came_too_late(fake, cluster):
    fake.add_topic("t", [1])
    cluster.list_offsets({T0: LATEST})
    fake.fault = lambda asked: Fault.SILENCE if asked.number == 2 else None
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, LATEST, -1)], isolation_level=0)
    silent, after = cluster.request_all(
        [(1, LIST_OFFSETS, request), (1, LIST_OFFSETS, request)], timeout_ms=200
    )
    assert isinstance(silent, DeadlineExceededError)
    assert isinstance(after, KafkaError)
    assert cluster.list_offsets({T0: LATEST}) == {T0: 0}


def test_answers_that_came_before_their_turn_are_received_first(fake, cluster):
    """As those before a log-in that is done again between two requests."""
    fake.add_topic("t", [1])
    cluster.metadata(["t"])
    deadline = Deadline.after(10_000)
    connection = cluster.take(1, deadline)

    def send(time_ms):
        asked = ListOffsetsRequest([ListOffsetsPartition("t", 0, time_ms)])
        connection.send(LIST_OFFSETS, asked, deadline)

    fake.partition("t").start_offset, fake.partition("t").end_offset = 3, 7
    for time_ms in (LATEST, EARLIEST):
        send(time_ms)
    for _ in range(2):
        found = connection.exchange_now(METADATA, MetadataRequest(topics=["t"]), deadline)
        assert [topic.topic for topic in found.topics] == ["t"]
    send(LATEST)
    assert connection.in_flight == 3
    assert wait_readable([connection], 0) == [connection]
    assert not connection.reusable
    answers = [connection.receive(deadline), connection.receive_nowait()]
    answers.append(connection.receive(deadline))
    assert [answer.partitions[0].offset for answer in answers] == [7, 3, 7]
    assert connection.reusable
    cluster.give_back(connection)
