"""R-CLI3: the znodes of consumer groups."""

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
