"""Finding brokers, topics, leaders and offsets (R-CLI1)."""

import time

import pytest

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.support.batches import numbered_batch

T0 = TopicPartition("t", 0)


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
