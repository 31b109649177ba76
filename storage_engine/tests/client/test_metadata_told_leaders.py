"""A refusal that names the new leader is believed until metadata are as new (KIP-951)."""

from uuid import UUID

import pytest

from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.metadata import Leader
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.tests.client.support.batches import append_batches, numbered_batch, values_of

T0 = TopicPartition("t", 0)


@pytest.fixture
def told(fake):
    """Refusals say who leads, and the topic `t` is led by broker 1."""
    fake.add_topic("t", [1])
    fake.tells_leaders = True
    return fake


def test_a_producer_goes_where_the_refusal_sends_it_without_asking_or_waiting(told, cluster):
    with BatchWriter(cluster) as writer:
        writer.append(T0, numbered_batch(0))
        writer.flush()
        told.move_leader("t", 0, 2)
        asked = told.count("Metadata")
        writer.append(T0, numbered_batch(1))
        writer.flush()
        assert told.count("Metadata") == asked
    assert values_of(told.partition("t")) == [0, 1]
    assert cluster.known_leader(T0) == Leader(2, 1)


def test_a_reader_goes_where_the_refusal_sends_it_without_asking_or_waiting(told, cluster):
    append_batches(told)
    reader = BatchFetcher(cluster, {T0: (0, 6)}, most_in_flight=0)
    assert [each.next_offset for each in reader.poll(1000)] == [3]
    told.move_leader("t", 0, 3)
    append_batches(told)
    asked = told.count("Metadata")
    assert [each.next_offset for each in reader.poll(1000)] == [6]
    assert told.count("Metadata") == asked
    reader.close()


def test_a_leader_that_no_address_is_known_of_is_asked_for(told, cluster):
    cluster.refresh(["t"])
    assert not cluster.told_leader(T0, (9, 5), ())
    assert cluster.told_leader(T0, (9, 5), [LeaderNode(9, "nine", 1)])
    assert cluster.known_leader(T0) == Leader(9, 5)


def test_what_was_told_outlives_the_answer_of_a_broker_that_does_not_know_it_yet(told, cluster):
    cluster.refresh(["t"])
    assert cluster.told_leader(T0, (2, 5), ())
    cluster.refresh(["t"])
    assert cluster.known_leader(T0) == Leader(2, 5)


def test_what_was_told_ends_with_a_topic_that_is_made_anew(told, cluster):
    cluster.refresh(["t"])
    assert cluster.told_leader(T0, (2, 5), ())
    told.add_topic("t", [3])
    told.topic_ids["t"] = UUID(int=77)
    cluster.refresh(["t"])
    assert cluster.known_leader(T0) == Leader(3, 0)


def test_an_older_leader_is_no_news(told, cluster):
    told.move_leader("t", 0, 2)
    cluster.refresh(["t"])
    assert not cluster.told_leader(T0, (1, 0), ())
    assert not cluster.told_leader(T0, None, ())
    assert cluster.known_leader(T0) == Leader(2, 1)
