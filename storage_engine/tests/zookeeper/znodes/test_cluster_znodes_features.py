"""Features in ZooKeeper, as Kafka's brokers and controllers write them (KIP-584)."""

import json

import pytest

from storage_engine.core.features import (
    FIRST_FEATURES,
    NEWEST_LEVELS,
    SUPPORTED,
    SUPPORTED_BY_FIRST_RELEASE,
    FeatureLevels,
)
from storage_engine.core.ids import BrokerId
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode, FeatureZNode

FORMAT_2 = '{"version":2,"status":1,"features":{"group.version":{"max_version_level":1}}}'
FORMAT_1 = (
    '{"version":1,"status":1,"features":'
    '{"group.version":{"min_version_level":1,"max_version_level":1}}}'
)
NODE = {"version": 2, "status": 1, "features": {"f": {"max_version_level": 1}}}


def test_levels_are_written_in_kafkas_second_format_without_those_of_0():
    assert FeatureZNode(levels={"group.version": 1, "x": 0}).encode() == FORMAT_2.encode()


@pytest.mark.parametrize("text", [FORMAT_1, FORMAT_2])
def test_both_formats_are_read(text):
    assert FeatureZNode.decode(text.encode()).levels == {"group.version": 1}


@pytest.mark.parametrize("levels", [NEWEST_LEVELS, FIRST_FEATURES.levels])
def test_what_was_written_is_read_again(levels):
    used = {name: level for name, level in levels.items() if level}
    assert FeatureZNode.decode(FeatureZNode(levels=levels).encode()).levels == used


def test_a_node_that_is_switched_off_has_no_levels():
    assert FeatureZNode.decode(json.dumps({**NODE, "status": 0}).encode()).levels == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": 3},
        {"status": 2},
        {"status": None},
        {"features": []},
        {"features": {"f": 1}},
        {"features": {"f": {}}},
        {"features": {"f": {"max_version_level": 0}}},
        {"features": {"f": {"max_version_level": 2**15}}},
        {"features": {"f": {"max_version_level": "1"}}},
        {"features": {"x" * 256: {"max_version_level": 1}}},
        {"features": {"\ud800": {"max_version_level": 1}}},
        {"features": {f"f{n}": {"max_version_level": 1} for n in range(1001)}},
    ],
)
def test_what_others_wrote_is_refused_in_one_line(changes):
    with pytest.raises(ZnodeFormatError, match=r"^znode /feature[^\n]*$"):
        FeatureZNode.decode(json.dumps({**NODE, **changes}).encode())


def registered(**fields: object) -> BrokerIdZNode:
    node = {"version": 5, "host": "h", "port": 1, "jmx_port": -1, **fields}
    return BrokerIdZNode.decode(1, json.dumps(node).encode())


def test_a_broker_registers_the_levels_that_it_supports_as_kafkas_do():
    node = BrokerIdZNode(broker_id=BrokerId(1), host="h", port=1, supported=SUPPORTED)
    written = json.loads(node.encode())
    assert written["version"] == 5
    assert written["features"] == {
        "group.version": {"min_version": 0, "max_version": 1},
        "transaction.version": {"min_version": 2, "max_version": 2},
    }
    assert BrokerIdZNode.decode(1, node.encode()) == node


@pytest.mark.parametrize("features", [{}, None])
def test_a_broker_without_features_supports_what_the_first_release_did(features):
    assert registered(features=features).supported == SUPPORTED_BY_FIRST_RELEASE
    assert registered().supported == SUPPORTED_BY_FIRST_RELEASE


def test_further_keys_of_kafkas_brokers_are_ignored():
    levels = {"min_version": 1, "first_active_version": 2, "max_version": 3}
    assert registered(features={"f": levels}).supported == {"f": FeatureLevels(1, 3)}


@pytest.mark.parametrize(
    "features",
    [
        [1],
        {"f": 1},
        {"f": {"min_version": 0}},
        {"f": {"min_version": -1, "max_version": 1}},
        {"f": {"min_version": 0, "max_version": 2**15}},
        {"x" * 256: {"min_version": 0, "max_version": 1}},
        {f"f{n}": {"min_version": 0, "max_version": 1} for n in range(1001)},
    ],
)
def test_a_registration_with_other_features_is_refused_in_one_line(features):
    with pytest.raises(ZnodeFormatError, match=r"^znode /brokers/ids/1[^\n]*$"):
        registered(features=features)
