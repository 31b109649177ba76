"""A leader that hangs is left once another leads, although its connection is open (R-REP12)."""

import time

import pytest

from storage_engine.client import in_flight
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.support.batches import append_batches, numbered_batch, values_of

T0 = TopicPartition("t", 0)


def test_a_producer_leaves_a_leader_that_hangs_once_another_leads(fake, monkeypatch):
    monkeypatch.setattr(in_flight, "SILENT_MS", 100)
    fake.add_topic("t", [1])
    hangs = (1, "Produce")
    fake.fault = lambda asked: Fault.SILENCE if (asked.broker_id, asked.api) == hangs else None
    with (
        Cluster(fake.bootstrap_servers, request_timeout_ms=60_000) as cluster,
        BatchWriter(cluster) as writer,
    ):
        writer.append(T0, numbered_batch(0))
        writer.poll(150)
        assert not writer.idle
        # What hangs has it already: it is not doubled.
        fake.move_leader("t", 0, 2)
        started_s = time.monotonic()
        writer.flush()
        assert time.monotonic() - started_s < 20
    assert values_of(fake.partition("t")) == [0]


@pytest.mark.parametrize("most_in_flight", [0, 4])
def test_a_reader_leaves_a_leader_that_hangs_once_another_leads(fake, monkeypatch, most_in_flight):
    monkeypatch.setattr(in_flight, "SILENT_MS", 100)
    fake.add_topic("t", [1])
    append_batches(fake, 2)

    def hang(asked):
        if asked.api == "Fetch" and asked.broker_id == 1 and asked.number > 1:
            if fake.partition("t").leader == 1:
                fake.move_leader("t", 0, 2)
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
