"""Changes of settings in ZooKeeper while brokers change the same ones, die, or a topic is deleted.
Source: R-TOOL1."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.settings.settings_requests import (
    DONE,
    SET,
    SOON_MS,
    TOPIC,
    TP,
    alter,
    segment_bytes,
    send_alter,
    stored,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode


def test_an_unknown_topic_is_refused_and_gets_no_settings(topic):
    code, message = alter(topic, 1, TOPIC, "none", ("retention.ms", SET, "5"))
    assert (code, message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "topic 'none' does not exist",
    )
    assert topic.zookeeper.data(ConfigZNode.topic_path("none")) is None


def test_two_brokers_that_change_one_topic_at_once_lose_nothing(topic):
    answers = [
        send_alter(topic, 1, TOPIC, "t", ("retention.ms", SET, "5")),
        send_alter(topic, 2, TOPIC, "t", ("retention.bytes", SET, "6")),
        send_alter(topic, 3, TOPIC, "t", ("segment.bytes", SET, "1000")),
    ]
    for each in answers:
        assert topic.answer(each).responses[0].error_code == 0
    assert stored(topic) == {
        "retention.bytes": "6",
        "retention.ms": "5",
        "segment.bytes": "1000",
    }
    topic.loop.run_for(SOON_MS)
    assert {broker.logs.logs[TP].config.retention_bytes for broker in topic.brokers} == {6}


def test_a_change_whose_answer_was_lost_may_be_repeated(topic):
    topic[1].session.lose_answers = 1
    code, _ = alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert code is ErrorCode.REQUEST_TIMED_OUT
    assert alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(broker) for broker in topic.brokers] == [1000] * 3


def test_settings_of_a_deleted_topic_do_not_come_back_with_its_name(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert topic.answer(topic.delete_topic("t")).responses[0].error_code == 0
    code, _ = alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.create_topic("t").error_code == 0
    topic.produced(TP, b"new")
    assert segment_bytes(topic[topic.state(TP).leader]) == 1 << 30


@pytest.mark.parametrize("after_ms", range(10))
def test_a_broker_killed_at_any_moment_of_a_change_leaves_all_or_nothing(topic, after_ms):
    send_alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    topic.loop.run_for(after_ms)
    topic[1].kill()
    topic.loop.run_for(SOON_MS)
    expected = 1000 if stored(topic) else 1 << 30
    assert [segment_bytes(topic[b]) for b in (2, 3)] == [expected] * 2
