"""The znodes of groups that meet in ZooKeeper: their paths and content, as Kafka documents them."""

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.consumer_znodes import (
    ConsumerGroupPaths,
    ConsumerIdZNode,
    OffsetZNode,
    group_problem,
    new_consumer_id,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError


def test_paths_are_those_of_kafka():
    paths, tp = ConsumerGroupPaths("g"), TopicPartition("t", 3)
    assert (paths.id("c"), paths.owner(tp)) == ("/consumers/g/ids/c", "/consumers/g/owners/t/3")
    assert paths.offset(tp) == "/consumers/g/offsets/t/3"
    assert paths.session(-1) == "/consumers/g/sessions/ffffffffffffffff"


def test_streams_and_offsets_are_read_as_they_were_written():
    node = ConsumerIdZNode({"b": 2, "a": 1})
    assert node.encode() == b'{"a":1,"b":2}'
    assert ConsumerIdZNode.decode("/path", node.encode()) == node
    for offset in (0, 2**63 - 1):
        assert OffsetZNode.decode("/path", OffsetZNode.encode(offset)) == offset


@pytest.mark.parametrize("data", [b'{"t":0}', b'{"t":3000000000}', b'{"t":"1"}', b"[]", b""])
def test_streams_out_of_range_are_refused(data):
    with pytest.raises(ZnodeFormatError, match=r"^znode /consumers/g/ids/c"):
        ConsumerIdZNode.decode("/consumers/g/ids/c", data)


@pytest.mark.parametrize("data", [b"", b"-1", b"1.5", b"9" * 19, b"9" * 5000, b"1 ", b"\xb2"])
def test_what_is_no_offset_is_refused_in_one_short_line(data):
    with pytest.raises(ZnodeFormatError, match=r"^znode /consumers/g/offsets/t/0\b.*$") as caught:
        OffsetZNode.decode("/consumers/g/offsets/t/0", data)
    assert len(str(caught.value)) < 200


def test_an_id_names_its_host_and_comes_once():
    host, colon, _ = new_consumer_id().rpartition(":")
    assert host and colon and new_consumer_id() != new_consumer_id()


@pytest.mark.parametrize("group", ["a/b", ".", "..", "a\x00", "a\x85", "\ud800"])
def test_a_group_that_can_name_no_znode_is_refused(group):
    assert group_problem(group)
    assert group_problem("a b.c") is None
