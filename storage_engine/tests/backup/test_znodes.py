"""The nodes of a backup: without secrets where that is asked for, and placed on new brokers."""

import json

import pytest

from storage_engine.backup.errors import DamagedError
from storage_engine.backup.placement import placed
from storage_engine.backup.znodes import decode_nodes, encode_nodes, without_secrets
from storage_engine.core.ids import BrokerId
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode


def config(**values: str) -> bytes:
    return json.dumps({"version": 1, "config": values}).encode()


def test_secrets_are_left_out_and_nothing_else():
    nodes = {
        "/config/users/alice": config(**{"SCRAM-SHA-512": "salt=…", "producer_byte_rate": "5"}),
        "/config/brokers/1": config(**{"ssl.keystore.password": "x", "num.io.threads": "3"}),
        "/config/topics/t": config(**{"retention.ms": "7"}),
        "/config/users": b"",
        "/scram_decoy_key": b"key",
        "/kafka-acl/Topic/t": b"{}",
    }
    kept = without_secrets(nodes)
    assert json.loads(kept["/config/users/alice"])["config"] == {"producer_byte_rate": "5"}
    assert json.loads(kept["/config/brokers/1"])["config"] == {"num.io.threads": "3"}
    assert "/scram_decoy_key" not in kept
    for path in ("/config/topics/t", "/config/users", "/kafka-acl/Topic/t"):
        assert kept[path] == nodes[path]


def test_nodes_are_read_as_they_were_written():
    nodes = {"/a": b"\x00\xff", "/b": b""}
    assert decode_nodes("nodes", encode_nodes(nodes)) == nodes
    with pytest.raises(DamagedError, match="nodes is damaged"):
        decode_nodes("nodes", b"[1]")


def topic(*replicas: tuple[int, ...]) -> TopicZNode:
    return TopicZNode(
        topic="t",
        assignment={number: tuple(map(BrokerId, each)) for number, each in enumerate(replicas)},
    )


def test_partitions_stay_on_brokers_of_the_same_ids():
    found = placed({"t": topic((1, 2), (2, 3))}, [BrokerId(each) for each in (1, 2, 3, 4)])
    assert found == {"t": {0: (1, 2), 1: (2, 3)}}


def test_partitions_are_given_out_in_turn_to_other_brokers():
    topics = {"a": topic((1, 2, 3), (2, 3, 1)), "b": topic((3, 1, 2))}
    found = placed(topics, [BrokerId(7), BrokerId(5)])
    assert found == {"a": {0: (5, 7), 1: (7, 5)}, "b": {0: (5, 7)}}
