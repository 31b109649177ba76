"""R-CLI3: which stream of a group in ZooKeeper reads which partition."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.zookeeper_consumer.assignment import (
    LedPartition,
    StreamCounts,
    TopicFilter,
    assign_topic,
)

STREAMS = st.dictionaries(st.text("abc:", min_size=1, max_size=3), st.integers(1, 4), min_size=1)

PARTITIONS = st.lists(st.integers(-1, 3), max_size=12)


def by_the_document(
    streams: dict[str, int], partitions: list[LedPartition]
) -> dict[int, tuple[str, int]]:
    """Step by step: sort both, give to each stream its run; the remainder one each, in front."""
    members = [(consumer, n) for consumer in sorted(streams) for n in range(streams[consumer])]
    ordered = [led.partition for led in sorted(partitions)]
    size, rest = len(ordered) // len(members), len(ordered) % len(members)
    found = {}
    for i, member in enumerate(members):
        for _ in range(size + (1 if i < rest else 0)):
            found[ordered.pop(0)] = member
    assert not ordered
    return found


@given(STREAMS, PARTITIONS)
def test_each_partition_goes_to_the_stream_that_the_document_says(streams, leaders):
    partitions = [LedPartition(leader, number) for number, leader in enumerate(leaders)]
    expected = by_the_document(streams, partitions)
    found = {}
    for consumer in streams:
        for partition, stream in assign_topic(consumer, streams, reversed(partitions)).items():
            assert partition not in found, "one stream of the group"
            found[partition] = consumer, stream
    assert found == expected


def test_partitions_of_one_broker_stay_together_and_surplus_streams_idle():
    partitions = [LedPartition(leader, n) for n, leader in enumerate((2, 1, 2, 1))]
    assert assign_topic("a", {"a": 1, "b": 1}, partitions) == {1: 0, 3: 0}
    assert assign_topic("b", {"a": 1, "b": 1}, partitions) == {0: 0, 2: 0}
    assert assign_topic("b", {"a": 3, "b": 2}, partitions) == {2: 0}
    assert assign_topic("b", {"a": 4, "b": 2}, partitions) == {}
    # What another has written costs no time.
    assert assign_topic("b", {"a": 10**15, "b": 1}, partitions) == {}


def test_filters_look_at_whole_names_and_never_at_the_brokers_topics():
    topics = ("clicks", "clicks2", "views", "__consumer_offsets")
    white, black = TopicFilter.white_list("clicks|v.*"), TopicFilter.black_list("clicks")
    assert StreamCounts({}, white, 2).of(topics) == {"clicks": 2, "views": 2}
    assert StreamCounts({}, black, 1).of(topics) == {"clicks2": 1, "views": 1}
    assert StreamCounts({"later": 3}).of(topics) == {"later": 3}
