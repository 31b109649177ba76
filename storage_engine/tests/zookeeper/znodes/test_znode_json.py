"""Whatever is read from a znode has a form in a request: numbers, names and sizes out of range are
refused where they are read, in one short line that names the znode."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import (
    TopicPartition,
)
from storage_engine.zookeeper.admin_znodes import (
    DeleteTopicsZNode,
    IsrChangeZNode,
    LogDirEventZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ClusterIdZNode,
    ConfigZNode,
    ControllerEpochZNode,
    ControllerZNode,
    FeatureZNode,
    ProducerIdBlockZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

HUGE = 3_000_000_000


DEEP = b"[" * 100_000


MANY_DIGITS = "9" * 5000


BROKER = {"host": "h", "port": 9092}


STATE = {"leader": 1, "leader_epoch": 0, "isr": [1], "controller_epoch": 1}


BLOCK = {"broker": 1, "block_start": "0", "block_end": "999"}


def encoded(fields: object) -> bytes:
    return json.dumps(fields).encode()


def changed(fields: dict[str, Any], **others: object) -> bytes:
    return encoded({**fields, **others})


REFUSED = [
    *(
        (BrokerIdZNode.decode, (1, changed(BROKER, **{key: value})))
        for key, values in {
            "port": (-1, 0, 65536, HUGE),
            "host": (
                *("", "h" * 256, "\ud800", "a,b", "a b", "a\nb", "[a"),
                *("a..b", ".a", ".", "h" * 64, ":", "a:b", "1::2::3", "::1%", "h%1"),
            ),
            "rack": ("r" * 40_000, "\ud800", 7),
            "endpoints": (["\ud800"], [7]),
            "tail_lost_epoch": (-2, 2**63),
        }.items()
        for value in values
    ),
    *(
        (TopicZNode.decode, ("t", encoded({"partitions": partitions})))
        for partitions in (
            {str(HUGE): [1]},
            {MANY_DIGITS: [1]},
            {"00": [1]},
            {"²": [1]},
            {"0": [1, HUGE]},
            {"0": [-1]},
        )
    ),
    *(
        (TopicZNode.decode, (name, encoded({"partitions": {"0": [1]}})))
        for name in ("x" * 250, "ä", "a b", "a\nb")
    ),
    *(
        (PartitionStateZNode.decode, ("t", 0, changed(STATE, **{key: value})))
        for key, values in {
            "leader": (-2, HUGE),
            "leader_epoch": (-1, 2**31 - 1, HUGE),
            "controller_epoch": (-1, 2**31 - 1, HUGE),
            "isr": ([HUGE], [-1], [1, 1]),
            "joined_epochs": ({"1": 2**63}, {MANY_DIGITS: 1}, {"²": 1}, {"1": "1"}, []),
        }.items()
        for value in values
    ),
    (ControllerZNode.decode, (encoded({"brokerid": HUGE}),)),
    (ControllerZNode.decode, (encoded({"brokerid": -1}),)),
    (ControllerEpochZNode.decode, (b"2147483647",)),
    (ControllerEpochZNode.decode, (b"3000000000",)),
    (ControllerEpochZNode.decode, (b"-1",)),
    (ControllerEpochZNode.decode, (b"1_0",)),
    (ControllerEpochZNode.decode, (MANY_DIGITS.encode(),)),
    (ProducerIdBlockZNode.decode, (changed(BLOCK, block_end=str(2**63 - 1)),)),
    (ProducerIdBlockZNode.decode, (changed(BLOCK, block_end=MANY_DIGITS),)),
    (ProducerIdBlockZNode.decode, (changed(BLOCK, block_start="-5"),)),
    (ProducerIdBlockZNode.decode, (changed(BLOCK, broker=HUGE),)),
    (ClusterIdZNode.decode, (encoded({"id": "x" * 256}),)),
    (ClusterIdZNode.decode, (encoded({"id": "a\nb"}),)),
    (ClusterIdZNode.decode, (encoded({"id": ""}),)),
    (ConfigZNode.decode, ("/config/topics/t", encoded({"config": {"k": "\ud800"}}))),
    (LogDirEventZNode.decode, ("log_dir_event_1", encoded({"broker": HUGE}))),
]


@pytest.mark.parametrize(("decode", "arguments"), REFUSED)
def test_a_value_out_of_range_is_refused_in_one_short_line(decode, arguments):
    with pytest.raises(ZnodeFormatError, match=r"^znode /") as caught:
        decode(*arguments)
    assert len(str(caught.value)) < 500


def test_a_value_at_the_end_of_its_range_is_taken():
    state = changed(STATE, leader_epoch=2**31 - 2, leader=2**31 - 1, isr=[2**31 - 1])
    assert PartitionStateZNode.decode("t", 0, state).leader_epoch == 2**31 - 2
    topic = TopicZNode.decode("t" * 249, encoded({"partitions": {str(2**31 - 1): [2**31 - 1]}}))
    assert topic.assignment == {2**31 - 1: (2**31 - 1,)}
    assert ControllerEpochZNode.decode(b"2147483646\n") == 2**31 - 2
    assert ControllerZNode.decode(encoded({"brokerid": 1, "timestamp": MANY_DIGITS})) == (
        ControllerZNode(broker_id=ControllerZNode.decode(b'{"brokerid":1}').broker_id)
    )


@pytest.mark.parametrize("data", [DEEP, b"9" * 5000, b'{"a":' * 50_000, b"\xff", b""])
def test_json_that_python_can_not_take_is_refused_in_one_short_line(data):
    for decode in (
        lambda: BrokerIdZNode.decode(1, data),
        lambda: TopicZNode.decode("t", data),
        lambda: PreferredReplicaElectionZNode.decode(data),
        lambda: ConfigZNode.decode("/config/topics/t", data),
        lambda: FeatureZNode.decode(data),
    ):
        with pytest.raises(ZnodeFormatError, match=r"^znode /") as caught:
            decode()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "node",
    [
        {"topic": "a/b", "partition": 0, "replicas": [1]},
        {"topic": "..", "partition": 0, "replicas": [1]},
        {"topic": "\ud800", "partition": 0, "replicas": [1]},
        {"topic": "t", "partition": HUGE, "replicas": [1]},
        {"topic": "t", "partition": -1, "replicas": [1]},
        {"topic": "t", "replicas": [1]},
        [],
    ],
)
def test_an_entry_out_of_range_keeps_no_other_entry_out(node):
    good = {"topic": "good", "partition": 0, "replicas": [1]}
    data = encoded({"partitions": [node, good]})
    tp = TopicPartition("good", 0)
    moved = ReassignPartitionsZNode.decode(data)
    assert (list(moved.target_replicas), len(moved.problems)) == ([tp], 1)
    preferred = PreferredReplicaElectionZNode.decode(data)
    assert (preferred.partitions, len(preferred.problems)) == ((tp,), 1)
    changes = IsrChangeZNode.decode("isr_change_1", data)
    assert (changes.partitions, len(changes.problems)) == ((tp,), 1)


def test_a_deletion_of_what_can_not_be_a_topic_keeps_no_other_out():
    names = ["a/b", "", "\ud800", "x" * 300, 7, None, ["t"], "good"]
    node = DeleteTopicsZNode.decode(encoded({"topics": names}))
    assert node.topics == ("good",)
    assert len(node.problems) == 6
    assert "2 more" in node.problems[-1]
    assert all(len(problem) < 500 for problem in node.problems)


def test_children_that_are_no_broker_ids_are_nobodys():
    names = ["1", "02", "²", MANY_DIGITS, str(HUGE), "-1", "x", "", str(2**31 - 1)]
    assert BrokerIdZNode.ids(names) == [1, 2**31 - 1]


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (
        lambda: BrokerIdZNode.decode(0, data),
        lambda: TopicZNode.decode("t", data),
        lambda: PartitionStateZNode.decode("t", 0, data),
        lambda: ControllerZNode.decode(data),
        lambda: ControllerEpochZNode.decode(data),
        lambda: DeleteTopicsZNode.decode(data),
        lambda: ProducerIdBlockZNode.decode(data),
        lambda: ConfigZNode.decode("/config/topics/t", data),
        lambda: FeatureZNode.decode(data),
    ):
        try:
            decode()
        except ZnodeFormatError as error:
            assert "\n" not in str(error)
