"""Ranges are read whole, once and in order, whatever happens on the way (R-CLI2, R-CLI5)."""

import random
import struct
import threading
import time
from itertools import pairwise

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetch_window import FetchWindow
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.fetching.ranges import read_range, read_ranges
from storage_engine.tests.client.support.batches import numbered_batch

T0 = TopicPartition("t", 0)


@pytest.fixture
def filled(fake):
    """Topic t: 6 partitions over 3 leaders, 100 batches of 3 records in each."""
    fake.add_topic("t", [1, 2, 3, 1, 2, 3])
    for partition in fake.topics["t"].values():
        for number in range(100):
            partition.append(bytes(numbered_batch(number, padding=50).data))
    return fake


def numbers(fetched):
    """The numbers of all batches, in order."""
    found = []
    for chunk in fetched:
        for position, header in iter_headers(chunk.records):
            end = position + header.size_in_bytes
            found.append(struct.unpack_from(">q", chunk.records, end - 8)[0])
    return found


@pytest.mark.parametrize("most_in_flight", [0, 1, 16])
@pytest.mark.parametrize("max_bytes", [10, 500, 1 << 20])
def test_a_range_is_read_whole_and_in_order(filled, cluster, most_in_flight, max_bytes):
    chunks = list(
        read_range(cluster, T0, 0, 300, max_bytes=max_bytes, most_in_flight=most_in_flight)
    )
    assert numbers(chunks) == list(range(100))
    assert chunks[0].start_offset == 0
    assert chunks[-1].next_offset == 300
    assert all(a.next_offset == b.start_offset for a, b in pairwise(chunks))
    assert {chunk.high_watermark for chunk in chunks} == {300}


def test_a_range_within_batches_brings_the_batches_at_its_edges(filled, cluster):
    chunks = list(read_range(cluster, T0, 10, 20, max_bytes=10))
    assert numbers(chunks) == [3, 4, 5, 6]
    assert chunks[-1].next_offset == 21


def test_an_empty_range_asks_nobody(filled, cluster):
    assert list(read_range(cluster, T0, 5, 5)) == []
    assert filled.count("Fetch") == 0


def test_chunks_stay_valid_when_later_ones_have_come(filled, cluster):
    for batch in range(20):
        filled.partition("t").append(bytes(numbered_batch(1000 + batch, padding=200_000).data))
    assert numbers(list(read_range(cluster, T0, 300, 360))) == list(range(1000, 1020))


def test_a_gap_where_compaction_has_removed_batches_is_passed(filled, cluster):
    partition = filled.partition("t")
    partition.batches = [b for n, b in enumerate(partition.batches) if n % 10 == 0 or n == 99]
    expected = [*range(0, 100, 10), 99]
    assert numbers(read_range(cluster, T0, 0, 300, max_bytes=10)) == expected


def test_a_range_whose_last_offsets_are_compacted_away_ends(filled, cluster):
    partition = filled.partition("t")
    partition.batches = [b for n, b in enumerate(partition.batches) if not 40 <= n < 60]
    chunks = list(read_range(cluster, T0, 0, 150, max_bytes=10))
    assert numbers(chunks)[:40] == list(range(40))
    assert chunks[-1].next_offset >= 150


def test_several_partitions_of_one_leader_share_its_fetches(filled, cluster):
    partitions = [TopicPartition("t", number) for number in range(6)]
    chunks = list(read_ranges(cluster, dict.fromkeys(partitions, (0, 300))))
    for tp in partitions:
        assert numbers(chunk for chunk in chunks if chunk.tp == tp) == list(range(100))
    assert filled.count("Fetch") <= 9


def test_the_next_fetch_is_on_its_way_before_the_caller_has_the_last(filled, cluster):
    chunks = read_range(cluster, T0, 0, 300, max_bytes=10)
    next(chunks)
    deadline = time.monotonic() + 60
    while filled.count("Fetch") < 2:
        assert time.monotonic() < deadline, "there is no second fetch"
        time.sleep(0.002)
    chunks.close()


def test_a_reader_that_stops_early_leaves_no_answer_for_the_next(filled, cluster):
    for _ in range(5):
        chunks = read_range(cluster, T0, 0, 300, max_bytes=10)
        assert numbers([next(chunks)]) == [0]
        chunks.close()
    assert numbers(read_range(cluster, T0, 0, 300)) == list(range(100))


def test_a_leader_that_moves_is_followed(filled, cluster):
    chunks = read_range(cluster, T0, 0, 300, max_bytes=500)
    found = []
    for count, chunk in enumerate(chunks):
        found += numbers([chunk])
        if count % 3 == 0:
            filled.move_leader("t", 0, count // 3 % 3 + 1)
    assert found == list(range(100))


def test_a_leader_that_dies_is_waited_for(filled, cluster):
    chunks = read_range(cluster, T0, 0, 300, max_bytes=500)
    found = numbers([next(chunks)])
    port = filled.stop_broker(1)
    threading.Timer(0.3, filled.start_broker, (1, port)).start()
    found += numbers(chunks)
    assert found == list(range(100))


def random_faults(filled, seed):
    chance = random.Random(seed)
    faults = [
        None,
        Fault.DROP,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        "move",
    ]

    def fault(asked):
        if asked.api != "Fetch":
            return Fault.DROP if asked.api == "Metadata" and chance.random() < 0.1 else None
        chosen = chance.choices(faults, [20, 1, 1, 1, 1, 1, 1, 1])[0]
        if chosen == "move":
            filled.move_leader("t", chance.randrange(6), chance.choice([1, 2, 3]))
            return None
        return chosen

    filled.fault = fault


@pytest.mark.parametrize("seed", range(3))
def test_under_random_faults_every_batch_comes_once_and_in_order(filled, seed):
    random_faults(filled, seed)
    partitions = [TopicPartition("t", number) for number in range(6)]
    with Cluster(filled.bootstrap_servers) as cluster:
        chunks = list(read_ranges(cluster, dict.fromkeys(partitions, (0, 300)), max_bytes=2000))
    for tp in partitions:
        assert numbers(chunk for chunk in chunks if chunk.tp == tp) == list(range(100))


@pytest.mark.parametrize("seed", range(3))
def test_under_random_faults_fetches_in_flight_bring_each_batch_once(filled, seed, monkeypatch):
    monkeypatch.setattr(FetchWindow, "wanted_in_flight", 5)
    random_faults(filled, seed)
    with Cluster(filled.bootstrap_servers) as cluster:
        chunks = list(read_range(cluster, T0, 10, 300, max_bytes=1000))
    assert numbers(chunks) == list(range(3, 100))
    assert all(a.next_offset == b.start_offset for a, b in pairwise(chunks))


def test_an_offset_out_of_range_is_an_error_with_the_valid_range(filled, cluster):
    filled.partition("t").start_offset = 30
    for start_offset in (0, 29, 301):
        with pytest.raises(OffsetOutOfRangeError, match="offsets 30 to 300") as raised:
            list(read_range(cluster, T0, start_offset, 1000))
        assert raised.value.log_start_offset == 30
        assert raised.value.log_end_offset == 300


def test_a_topic_or_partition_that_does_not_exist_is_an_error_that_names_it(filled, cluster):
    with pytest.raises(KafkaError, match="topic 'nope' does not exist"):
        list(read_range(cluster, TopicPartition("nope", 0), 0, 1))
    with pytest.raises(KafkaError, match="topic 't' has 6 partitions"):
        list(read_range(cluster, TopicPartition("t", 6), 0, 1))


def test_an_end_beyond_the_high_watermark_is_waited_for(filled, cluster):
    partition = filled.partition("t")
    partition.readable_to = 150

    def grow():
        partition.readable_to = None
        filled.wake()

    threading.Timer(0.3, grow).start()
    assert numbers(read_range(cluster, T0, 0, 300)) == list(range(100))


def test_an_end_that_does_not_come_is_an_error_at_the_timeout(filled, cluster):
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="t-0: offset 300 has not come"):
        list(read_range(cluster, T0, 0, 301, timeout_ms=300, max_wait_ms=50))
    assert time.monotonic() - started < 30


def test_a_partition_without_a_leader_is_an_error_at_the_timeout(filled, cluster):
    filled.move_leader("t", 0, -1)
    with pytest.raises(DeadlineExceededError, match="t-0 has no leader"):
        list(read_range(cluster, T0, 0, 300, timeout_ms=300))


def test_a_broker_that_does_not_answer_is_an_error_at_the_timeout(filled):
    filled.fault = lambda asked: Fault.SILENCE if asked.api == "Fetch" else None
    started = time.monotonic()
    with (
        Cluster(filled.bootstrap_servers, request_timeout_ms=100) as cluster,
        pytest.raises(DeadlineExceededError),
    ):
        list(read_range(cluster, T0, 0, 300, timeout_ms=500, max_wait_ms=50))
    assert time.monotonic() - started < 30


def test_a_final_error_is_raised_at_once(filled, cluster):
    filled.fault = lambda a: ErrorCode.TOPIC_AUTHORIZATION_FAILED if a.api == "Fetch" else None
    with pytest.raises(KafkaError, match="t-0: not allowed"):
        list(read_range(cluster, T0, 0, 300))


def test_aborted_transactions_come_with_read_committed_only(filled, cluster):
    filled.partition("t").aborted = [(7, 30), (8, 60)]
    (chunk,) = read_range(cluster, T0, 0, 300, isolation="read_committed")
    assert chunk.aborted_transactions == ((7, 30), (8, 60))
    (chunk,) = read_range(cluster, T0, 0, 300)
    assert chunk.aborted_transactions == ()


def test_an_unknown_isolation_level_is_refused(cluster):
    with pytest.raises(ConfigError, match="'read_anything'"):
        read_range(cluster, T0, 0, 1, isolation="read_anything")


def test_a_reader_without_an_end_goes_on_with_what_comes(filled, cluster):
    # On a busy machine that takes more than the time of the reader.
    cluster.refresh(["t"])
    reader = BatchFetcher(cluster, {T0: (297, None)}, max_wait_ms=50, timeout_ms=100)
    assert numbers(reader.poll(5000)) == [99]
    assert reader.poll(250) == []
    filled.loop.call_soon_threadsafe(filled.partition("t").append, bytes(numbered_batch(100).data))
    assert numbers(reader.poll(5000)) == [100]
    assert reader.position(T0) == 303
    assert not reader.done
    reader.close()
