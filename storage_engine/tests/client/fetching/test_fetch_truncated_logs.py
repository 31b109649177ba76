"""A leader that never had what was read (an unclean election) is noticed, and not read on from as
if nothing were (KIP-320).
"""

import logging

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.consumer.consumer import Consumer
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import LogTruncatedError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.mirror.source import MirrorSource, SourceShrunkError
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.support.batches import append_records

T0 = TopicPartition("t", 0)
LOST_FROM = 30
"""The first batch that the new leader never had; batches have 3 records."""

POLLS = 20


@pytest.fixture
def fake():
    made = FakeCluster()
    made.add_topic("t", [1])
    append(made, range(50))
    yield made
    made.close()


def append(fake, numbers):
    for number in numbers:
        append_records(fake, [b"%d" % number] * 3)


def elect_uncleanly(fake, *, batches=70):
    """Broker 2 leads, and is written to, so that all offsets read before are there again."""
    fake.partition("t").lose_from(LOST_FROM)
    fake.move_leader("t", 0, 2)
    append(fake, range(1000, 1000 + batches))
    fake.wake()


def impatient(fake) -> Cluster:
    return Cluster(fake.bootstrap_servers, request_timeout_ms=2000, deadline_ms=5000)


def poll_until_something(reader):
    for _ in range(POLLS):
        if found := reader.poll(200):
            return found
    raise AssertionError("nothing comes")


@pytest.mark.parametrize("batches", [70, 5], ids=["longer than before", "shorter than before"])
def test_reading_on_from_another_history_is_an_error_that_tells_where_it_begins(fake, batches):
    with impatient(fake) as cluster:
        reader = BatchFetcher(cluster, {T0: (0, None)}, most_in_flight=0)
        (first,) = poll_until_something(reader)
        assert first.next_offset == 150
        assert first.last_epoch == 0
        elect_uncleanly(fake, batches=batches)
        with pytest.raises(
            LogTruncatedError, match=r"t-0: the log was truncated: .* up to offset 150, .*offset 90"
        ) as raised:
            poll_until_something(reader)
        assert (raised.value.offset, raised.value.truncation_offset) == (150, 90)
        reader.close()


def test_a_reader_that_begins_behind_an_epoch_notices_it_too(fake):
    """Another one has read what is before."""
    elect_uncleanly(fake)
    with impatient(fake) as cluster:
        reader = BatchFetcher(cluster, {}, most_in_flight=0)
        reader.read_from(T0, 150, last_epoch=0)
        with pytest.raises(LogTruncatedError, match="from offset 90 on"):
            poll_until_something(reader)
        reader.close()


def test_a_new_leader_that_has_all_that_was_read_is_read_on_from(fake):
    with impatient(fake) as cluster:
        reader = BatchFetcher(cluster, {T0: (0, None)}, most_in_flight=0)
        poll_until_something(reader)
        fake.move_leader("t", 0, 2)
        append(fake, [50])
        (found,) = poll_until_something(reader)
        assert (found.start_offset, found.last_epoch) == (150, 1)
        reader.close()


@pytest.mark.parametrize("most_in_flight", [0, 1, 16])
def test_a_range_is_not_read_across_two_histories(fake, most_in_flight):
    """Also not by fetches ahead, once somebody else has found out who leads now."""
    with impatient(fake) as cluster:
        fetches = read_range(cluster, T0, 0, 240, max_bytes=1000, most_in_flight=most_in_flight)
        position = 0
        while position < 120:
            position = next(fetches).next_offset
        elect_uncleanly(fake)
        cluster.refresh(["t"])
        with pytest.raises(LogTruncatedError, match=f"from offset {LOST_FROM * 3} on"):
            for fetched in fetches:
                position = fetched.next_offset
        assert position <= 150, "what was fetched ahead from the old leader, at most"


def consumer(fake, reset):
    made = Consumer({"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": reset})
    made.assign([T0])
    made.seek(T0, 0)
    return made


def read_all(made, count):
    offsets: list[int] = []
    for _ in range(POLLS):
        if len(offsets) >= count:
            break
        offsets += [record.offset for record in made.poll(200)]
    return offsets


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_with_a_reset_goes_on_where_the_other_history_begins(fake, reset, caplog):
    with consumer(fake, reset) as made, caplog.at_level(logging.WARNING):
        assert read_all(made, 150) == list(range(150))
        elect_uncleanly(fake)
        assert read_all(made, 210) == list(range(90, 300))
    assert "log truncated partition=t-0: read up to offset=150, goes on at offset=90" in caplog.text


def test_a_consumer_without_a_reset_is_told(fake):
    with consumer(fake, "none") as made:
        read_all(made, 150)
        elect_uncleanly(fake)
        with pytest.raises(LogTruncatedError, match=r"auto\.offset\.reset is none: seek") as raised:
            read_all(made, 1)
        assert isinstance(raised.value, OffsetOutOfRangeError)
        made.seek(T0, raised.value.truncation_offset)
        assert read_all(made, 210) == list(range(90, 300))


def test_a_mirror_of_a_source_with_another_history_stops_and_says_so(fake):
    with impatient(fake) as cluster:
        source = MirrorSource("east", cluster, print)
        source.topics()
        source.read({T0: 0}, {"t": fake.topic_ids["t"]})
        poll_until_something(source)
        elect_uncleanly(fake)
        with pytest.raises(SourceShrunkError, match="t-0 of east was copied up to offset 150"):
            poll_until_something(source)
        source.close()
