"""Clients find the next leader at once where somebody knows it (KIP-951), and soon where nobody
does (R-REP12)."""

import time
from uuid import UUID

import pytest

from storage_engine.client import in_flight, retry
from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.metadata import Leader
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.tests.client.batches import numbered_batch
from storage_engine.tests.client.fake_cluster import Fault, values_of
from storage_engine.tests.client.fetching.ranges import read_range

T0 = TopicPartition("t", 0)


def count(fake, api):
    return sum(asked.api == api for asked in fake.asked)


def move(fake, to):
    fake.partition("t").leader = to
    fake.partition("t").epoch += 1


def fill(fake, batches=1):
    for number in range(batches):
        fake.partition("t").append(bytes(numbered_batch(number).data))


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
        move(told, to=2)
        asked = count(told, "Metadata")
        writer.append(T0, numbered_batch(1))
        writer.flush()
        assert count(told, "Metadata") == asked
    assert values_of(told.partition("t")) == [0, 1]
    assert cluster.known_leader(T0) == Leader(2, 1)


def test_a_reader_goes_where_the_refusal_sends_it_without_asking_or_waiting(told, cluster):
    fill(told)
    reader = BatchFetcher(cluster, {T0: (0, 6)}, most_in_flight=0)
    assert [each.next_offset for each in reader.poll(1000)] == [3]
    move(told, to=3)
    fill(told)
    asked = count(told, "Metadata")
    assert [each.next_offset for each in reader.poll(1000)] == [6]
    assert count(told, "Metadata") == asked
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
    move(told, to=2)
    cluster.refresh(["t"])
    assert not cluster.told_leader(T0, (1, 0), ())
    assert not cluster.told_leader(T0, None, ())
    assert cluster.known_leader(T0) == Leader(2, 1)


def silent(broker_id, api):
    return lambda asked: Fault.SILENCE if (asked.broker_id, asked.api) == (broker_id, api) else None


def test_a_producer_leaves_a_leader_that_hangs_once_another_leads(fake, monkeypatch):
    monkeypatch.setattr(in_flight, "SILENT_MS", 100)
    fake.add_topic("t", [1])
    fake.fault = silent(1, "Produce")
    with (
        Cluster(fake.bootstrap_servers, request_timeout_ms=60_000) as cluster,
        BatchWriter(cluster) as writer,
    ):
        writer.append(T0, numbered_batch(0))
        writer.poll(150)
        assert not writer.idle
        # What hangs has it already: it is not doubled.
        move(fake, to=2)
        started_s = time.monotonic()
        writer.flush()
        assert time.monotonic() - started_s < 20
    assert values_of(fake.partition("t")) == [0]


@pytest.mark.parametrize("most_in_flight", [0, 4])
def test_a_reader_leaves_a_leader_that_hangs_once_another_leads(fake, monkeypatch, most_in_flight):
    monkeypatch.setattr(in_flight, "SILENT_MS", 100)
    fake.add_topic("t", [1])
    fill(fake, 2)

    def hang(asked):
        if asked.api == "Fetch" and asked.broker_id == 1 and asked.number > 1:
            if fake.partition("t").leader == 1:
                move(fake, to=2)
            return Fault.SILENCE
        return None

    fake.fault = hang
    with Cluster(fake.bootstrap_servers, request_timeout_ms=60_000) as cluster:
        started_s = time.monotonic()
        read = list(
            read_range(
                cluster, T0, 0, 6, max_bytes=10, most_in_flight=most_in_flight, max_wait_ms=50
            )
        )
        assert time.monotonic() - started_s < 20
    assert [each.next_offset for each in read] == [3, 6]


def test_a_broker_that_did_not_answer_is_asked_last(fake):
    fake.fault = silent(1, "Metadata")
    with Cluster(fake.bootstrap_servers, request_timeout_ms=200) as cluster:
        for _ in range(20):
            cluster.refresh([], Deadline.after(30_000))
            # Else an open connection is used again.
            cluster.close()
    asked = [each.broker_id for each in fake.asked if each.api == "Metadata"]
    assert asked.count(1) <= 1


def test_the_first_second_of_retries_has_pauses_of_at_most_50_ms():
    pauses = [retry.pause_ms(attempt) for attempt in range(retry.QUICK_TRIES + 1)]
    assert max(pauses) <= 50
    assert 500 <= sum(pauses) <= 1_000


def test_later_retries_are_spread_and_at_most_half_a_second_apart():
    later = [retry.pause_ms(attempt) for attempt in range(30, 130)]
    assert max(later) <= retry.MAX_PAUSE_MS
    assert min(later) >= retry.MAX_PAUSE_MS // 2
    assert len(set(later)) > 20
