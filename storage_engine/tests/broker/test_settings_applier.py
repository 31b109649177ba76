"""A changed setting takes effect while brokers run: in logs, elections, checks and new topics.
Source: R-TOOL1."""

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.settings.settings_requests import (
    BROKER,
    DELETE,
    DONE,
    SET,
    SOON_MS,
    TOPIC,
    TP,
    alter,
    segment_bytes,
    stored,
)


def test_a_topics_setting_reaches_the_logs_of_all_brokers(topic):
    assert alter(topic, 2, TOPIC, "t", ("segment.bytes", SET, "1000")) == DONE
    assert segment_bytes(topic[2]) == 1000  # who was asked has it when he answers
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(broker) for broker in topic.brokers] == [1000] * 3


def test_a_deleted_setting_is_the_brokers_again(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"), ("retention.ms", SET, "5"))
    assert alter(topic, 2, TOPIC, "t", ("segment.bytes", DELETE, None)) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(broker) for broker in topic.brokers] == [1 << 30] * 3
    assert stored(topic) == {"retention.ms": "5"}


def test_an_append_larger_than_the_new_limit_is_refused(topic):
    assert alter(topic, 1, TOPIC, "t", ("max.message.bytes", SET, "80")) == DONE
    topic.loop.run_for(SOON_MS)
    answer = topic.answer(topic.produce(topic.state(TP).leader, TP, b"x" * 100))
    assert ErrorCode.of(answer.partitions[0].error_code) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_brokers_setting_counts_for_it_alone_and_one_for_all_for_all(topic):
    assert alter(topic, 1, BROKER, "1", ("log.segment.bytes", SET, "1000")) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(b) for b in topic.brokers] == [1000, 1 << 30, 1 << 30]
    assert alter(topic, 2, BROKER, "", ("log.segment.bytes", SET, "2000")) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(b) for b in topic.brokers] == [1000, 2000, 2000]
    assert alter(topic, 3, BROKER, "1", ("log.segment.bytes", DELETE, None)) == DONE
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(b) for b in topic.brokers] == [2000] * 3
    assert stored(topic, "brokers/<default>") == {"log.segment.bytes": "2000"}


def test_a_topics_own_setting_counts_more_than_its_brokers(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    alter(topic, 1, BROKER, "", ("log.segment.bytes", SET, "2000"))
    topic.loop.run_for(SOON_MS)
    assert [segment_bytes(b) for b in topic.brokers] == [1000] * 3


def test_compaction_looks_at_logs_by_its_interval_and_memory_as_they_are_changed(topic):
    leader = topic.state(TP).leader
    compactions = topic[leader].parts.upkeep.maintenance._compactions
    looks = []
    compactions._most_urgent = lambda now_ms: looks.append(now_ms)
    topic.loop.run_for(14_000)
    assert len(looks) <= 1
    alter(topic, 1, BROKER, "", ("log.cleaner.backoff.ms", SET, "100"))
    alter(topic, 1, BROKER, "", ("log.cleaner.dedupe.buffer.size", SET, "2000000"))
    topic.loop.run_for(2000)
    assert len(looks) >= 10
    assert compactions._keys_max_bytes() == 2_000_000


def test_the_retention_check_follows_its_interval_at_once(topic):
    leader = topic.state(TP).leader
    alter(topic, 1, TOPIC, "t", ("retention.ms", SET, "1"))
    topic.loop.run_for(2000)
    assert topic[leader].logs.logs[TP].log_start_offset == 0
    alter(topic, 1, BROKER, "", ("log.retention.check.interval.ms", SET, "100"))
    topic.loop.run_for(200)
    assert topic[leader].logs.logs[TP].log_start_offset == 1


def test_the_number_of_partitions_of_new_topics_changes(topic):
    alter(topic, 1, BROKER, "", ("num.partitions", SET, "4"))
    topic.loop.run_for(SOON_MS)
    assert topic.create_topic("u", partitions=-1).num_partitions == 4


@pytest.mark.parametrize(
    ("kind", "name"), [(TOPIC, "t"), (BROKER, "")], ids=["of the topic", "of all brokers"]
)
def test_allowing_unclean_elections_gives_an_offline_partition_a_leader(topic, kind, name):
    last = topic.state(TP).leader
    survivor, other = (b for b in (1, 2, 3) if b != last)
    topic[survivor].kill()
    topic[other].kill()
    topic.wait_in_sync(TP, last)
    topic[last].kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    topic[survivor].start()
    topic.loop.run_for(3000)
    assert topic.state(TP).leader == -1
    change = ("unclean.leader.election.enable", SET, "true")
    assert alter(topic, survivor, kind, name, change) == DONE
    topic.loop.run_until(lambda: topic.state(TP).leader == survivor, limit_ms=5000)
