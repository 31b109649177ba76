"""A reader whose partitions come, go, are paused and moved while fetches are under way."""

from collections.abc import Callable

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.support.batches import numbered_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BATCHES = 20
POLL_MS = 5_000


@pytest.fixture
def filled(fake: FakeCluster) -> FakeCluster:
    """Two partitions of one leader, batches of 3 records."""
    fake.add_topic("t", [1, 1])
    for partition in fake.topics["t"].values():
        for number in range(BATCHES):
            partition.append(bytes(numbered_batch(number, padding=50).data))
    return fake


def read_all(reader: BatchFetcher, done: Callable[[dict[TopicPartition, int]], bool]) -> None:
    """Each fetch goes on where the one before has ended."""
    ends: dict[TopicPartition, int] = {}
    for _ in range(1_000):
        if done(ends):
            return
        for fetched in reader.poll(POLL_MS):
            assert fetched.start_offset == ends.get(fetched.tp, fetched.start_offset)
            ends[fetched.tp] = fetched.next_offset
    raise AssertionError(f"read to {ends} only")


def test_what_is_under_way_for_a_partition_that_was_moved_is_dropped(filled, cluster: Cluster):
    reader = BatchFetcher(cluster, {}, max_bytes=300)
    assert reader.poll(0) == []
    reader.read_from(T0, 0)
    reader.read_from(T1, 0)
    first = reader.poll(POLL_MS)
    assert {fetched.start_offset for fetched in first} == {0}
    # The next fetch is on its way, for offsets that nobody wants any more.
    reader.read_from(T0, 45)
    reader.forget(T1)
    (after,) = reader.poll(POLL_MS)
    assert (after.tp, after.start_offset) == (T0, 45)
    reader.read_from(T0, 6)
    read_all(reader, lambda ends: ends.get(T0) == 3 * BATCHES)
    reader.close()


def test_a_paused_partition_is_not_fetched_until_it_is_resumed(filled, cluster: Cluster):
    reader = BatchFetcher(cluster, {T0: (0, None), T1: (0, None)}, max_bytes=300)
    reader.pause(T0)
    read_all(reader, lambda ends: ends == {T1: 3 * BATCHES})
    reader.pause(T1)
    assert reader.poll(50) == []
    reader.pause(T0, paused=False)
    read_all(reader, lambda ends: ends == {T0: 3 * BATCHES})
    reader.close()


def test_where_to_go_on_after_an_offset_out_of_range_is_asked(filled, cluster: Cluster):
    asked: list[object] = []

    def answer(*what: object) -> int:
        asked.append(what)
        return 57

    reader = BatchFetcher(cluster, {}, on_out_of_range=answer)
    reader.read_from(T0, 1_000)
    (fetched,) = reader.poll(POLL_MS)
    assert (fetched.start_offset, fetched.next_offset) == (57, 3 * BATCHES)
    assert asked == [(T0, 1_000, 0, 3 * BATCHES)]
    reader.close()


def test_a_partition_that_is_paused_stays_so_where_it_goes_on_elsewhere(filled, cluster: Cluster):
    def answer(*_: object) -> int:
        reader.pause(T0)
        return 0

    reader = BatchFetcher(cluster, {}, on_out_of_range=answer)
    reader.read_from(T0, 1_000)
    while reader.position(T0):
        assert reader.poll(50) == []
    assert reader.poll(50) == []
    reader.pause(T0, paused=False)
    (fetched,) = reader.poll(POLL_MS)
    assert fetched.start_offset == 0
    reader.close()
