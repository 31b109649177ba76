"""Brokers learn of changed settings, also those that were down or cut off. Source: R-TOOL1."""

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from storage_engine.broker.settings.config_changes import KEEP_MS
from storage_engine.tests.broker.settings.settings_requests import (
    BROKER,
    DONE,
    SET,
    SOON_MS,
    TOPIC,
    TP,
    alter,
    notifications,
    segment_bytes,
)
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode


def test_a_broker_that_was_down_has_the_setting_when_it_returns(topic):
    topic[3].kill()
    assert alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    topic[3].start()
    topic.wait_in_sync(TP, 1, 2, 3)
    assert segment_bytes(topic[3]) == 1000


def test_settings_survive_a_restart_of_all_brokers(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    alter(topic, 1, BROKER, "", ("message.max.bytes", SET, "5000"))
    for broker in topic.brokers:
        broker.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    for broker in topic.brokers:
        broker.start()
    topic.produced(TP, b"second")
    topic.wait_in_sync(TP, 1, 2, 3)
    configs = [broker.logs.logs[TP].config for broker in topic.brokers]
    assert {(c.segment_bytes, c.max_message_bytes) for c in configs} == {(1000, 5000)}


def test_a_broker_that_was_cut_off_reads_what_it_missed(topic):
    topic[3].session.cut_off()
    assert alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SESSION_TIMEOUT_MS // 2)
    assert segment_bytes(topic[3]) == 1 << 30
    topic[3].session.reconnect()
    topic.loop.run_for(SOON_MS)
    assert segment_bytes(topic[3]) == 1000


def test_a_broker_that_was_cut_off_until_the_notification_was_gone_reads_all_settings(topic):
    topic[3].session.cut_off()
    assert alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SESSION_TIMEOUT_MS)
    for child in notifications(topic):
        topic.zookeeper.drop(ConfigChangeZNode.path(child))
    topic[3].session.reconnect()
    topic.loop.run_for(1000)
    assert segment_bytes(topic[3]) == 1000


def test_old_notifications_go_and_others_stay(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    topic.loop.run_for(KEEP_MS - 1000)
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "2000"))
    topic.loop.run_for(2000)
    assert len(notifications(topic)) == 2
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "3000"))
    topic.loop.run_for(SOON_MS)
    assert len(notifications(topic)) == 2
    assert [segment_bytes(broker) for broker in topic.brokers] == [3000] * 3


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"version":2}', b'{"version":2,"entity_path":"users/x"}']
)
def test_a_notification_of_others_that_makes_no_sense_is_passed_over(topic, data):
    topic.zookeeper.put(ConfigChangeZNode.PREFIX + "x", data)
    topic.loop.run_for(SOON_MS)
    assert alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(broker) for broker in topic.brokers] == [1000] * 3
