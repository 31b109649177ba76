"""R-CLI3: groups that meet in ZooKeeper, without one: assignment, znodes, and members of a
simulated ZooKeeper in which everything goes wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.client.zookeeper_consumer.assignment import (
    LedPartition,
    StreamCounts,
    TopicFilter,
    assign_topic,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.zookeeper_consumer.zookeeper_group_world import SESSION_MS, World
from storage_engine.tests.sampling import examples
from storage_engine.zookeeper.consumer_znodes import (
    ConsumerGroupPaths,
    ConsumerIdZNode,
    OffsetZNode,
    group_problem,
    new_consumer_id,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError

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


def test_znodes_have_the_documented_form():
    paths, tp = ConsumerGroupPaths("g"), TopicPartition("t", 4)
    assert paths.id("h:u") == "/consumers/g/ids/h:u"
    assert paths.owner(tp) == "/consumers/g/owners/t/4"
    assert paths.offset(tp) == "/consumers/g/offsets/t/4"
    assert ConsumerIdZNode({"b": 1, "a": 2}).encode() == b'{"a":2,"b":1}'
    assert ConsumerIdZNode.decode("p", b'{"a": 2}').streams == {"a": 2}
    assert OffsetZNode.encode(12) == b"12"
    assert OffsetZNode.decode("p", b"12") == 12
    host, colon, _ = new_consumer_id().rpartition(":")
    assert host and colon and new_consumer_id() != new_consumer_id()
    for group in ("a/b", ".", "..", "a\x00", "a\x85", "\ud800"):
        assert group_problem(group)
    assert group_problem("a b.c") is None


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (ConsumerIdZNode.decode, b"{"),
        (ConsumerIdZNode.decode, b'{"a":0}'),
        (ConsumerIdZNode.decode, b'{"a":"1"}'),
        (ConsumerIdZNode.decode, b"[]"),
        (OffsetZNode.decode, b""),
        (OffsetZNode.decode, b"-1"),
        (OffsetZNode.decode, b"12\n"),
    ],
)
def test_what_others_wrote_amiss_is_told_with_its_path(decode, data):
    with pytest.raises(ZnodeFormatError, match="/some/path"):
        decode("/some/path", data)


@settings(max_examples=examples(90), deadline=None)
@given(st.integers(0, 2**32))
def test_nobody_reads_what_another_may_read_and_nothing_is_left_out(seed):
    world = World(seed)
    world.join()
    for _ in range(world.random.randint(5, 40)):
        world.loop.run_for(world.random.choice((1, 5, 30, 200)))
        world.happen()
    world.loop.run_for(3 * SESSION_MS)
    if not world.members:
        world.join()
    world.settle()
    assert world.takes
