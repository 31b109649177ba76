"""The settings after a change: checked together, and changed all or not at all."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.settings.settings_requests import (
    APPEND,
    DELETE,
    DONE,
    SET,
    SUBTRACT,
    TOPIC,
    TP,
    alter,
    describe,
    segment_bytes,
    stored,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            ("retention", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            "there is no topic setting 'retention', did you mean 'retention.ms'?",
        ),
        (
            ("segment.bytes", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            "segment.bytes=1: must be a whole number, 14 or more (bytes)",
        ),
        (
            ("segment.bytes", APPEND, "20"),
            ErrorCode.INVALID_CONFIG,
            "segment.bytes is not a list: it can only be set or deleted",
        ),
        (
            ("segment.bytes", SET, None),
            ErrorCode.INVALID_REQUEST,
            "segment.bytes: no value is given",
        ),
        (
            ("segment.bytes", 9, "20"),
            ErrorCode.INVALID_REQUEST,
            "segment.bytes: there is no operation 9",
        ),
    ],
)
def test_an_impossible_change_is_told_and_nothing_of_the_request_is_done(
    topic, change, code, message
):
    good = ("retention.ms", SET, "5")
    assert alter(topic, 1, TOPIC, "t", good, change) == (code, message)
    assert stored(topic) == {}


def test_a_setting_named_twice_is_refused(topic):
    changes = [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)]
    code, message = alter(topic, 1, TOPIC, "t", *changes)
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "'retention.ms' is named twice")


def test_items_are_added_to_lists_and_taken_from_them_once(topic):
    for _ in range(2):
        assert alter(topic, 1, TOPIC, "t", ("cleanup.policy", APPEND, "delete")) == DONE
    assert stored(topic) == {"cleanup.policy": "delete"}
    assert alter(topic, 1, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == DONE
    assert stored(topic) == {"cleanup.policy": ""}
    assert describe(topic, 1, TOPIC, "t")["cleanup.policy"].value == ""


def test_a_stored_setting_that_is_impossible_hides_no_other_and_can_be_taken_away(topic):
    config = {"retention.ms": "5", "segment.bytes": "1", "of.the.future": "x"}
    topic.zookeeper.put(ConfigZNode.topic_path("t"), ConfigZNode(config=config).encode())
    assert alter(topic, 1, TOPIC, "t", ("segment.ms", SET, "9")) == DONE
    assert topic[1].logs.logs[TP].config.retention_ms == 5
    assert segment_bytes(topic[1]) == 1 << 30
    assert alter(topic, 1, TOPIC, "t", ("of.the.future", DELETE, None)) == DONE
    assert "of.the.future" not in stored(topic)
