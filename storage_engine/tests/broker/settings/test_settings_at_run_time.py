"""Settings changed while brokers run, stop, are cut off and die: real brokers over a simulated
ZooKeeper and network. Source: R-TOOL1."""

import json

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.settings.config_changes import KEEP_MS
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.settings.settings_requests import (
    APPEND,
    BROKER,
    DELETE,
    DONE,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    replace_all,
    send_alter,
)
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode

TP = TopicPartition("t", 0)

SOON_MS = 50
"""Watch, listing, notification, settings: a few round trips to ZooKeeper."""


def stored(cluster: SimulatedCluster, path: str = "topics/t") -> dict[str, str]:
    data = cluster.zookeeper.data(f"/config/{path}")
    return {} if data is None else json.loads(data)["config"]


def segment_bytes(broker: SimulatedBroker) -> int:
    return broker.logs.logs[TP].config.segment_bytes


def notifications(cluster: SimulatedCluster) -> list[str]:
    return cluster.zookeeper.children(ConfigChangeZNode.PARENT)


# --- topics ---


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


def test_the_older_request_replaces_all_settings(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert replace_all(topic, 1, TOPIC, "t", retention_ms="7") == DONE
    assert stored(topic) == {"retention.ms": "7"}


def test_validation_alone_changes_nothing(topic):
    change = ("segment.bytes", SET, "1000")
    assert alter(topic, 1, TOPIC, "t", change, validate_only=True) == DONE
    code, _ = alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1"), validate_only=True)
    assert code is ErrorCode.INVALID_CONFIG
    assert stored(topic) == {}
    assert notifications(topic) == []


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


def test_an_unknown_topic_is_refused_and_gets_no_settings(topic):
    code, message = alter(topic, 1, TOPIC, "none", ("retention.ms", SET, "5"))
    assert (code, message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "topic 'none' does not exist",
    )
    assert topic.zookeeper.data(ConfigZNode.topic_path("none")) is None


def test_items_are_added_to_lists_and_taken_from_them_once(topic):
    for _ in range(2):
        assert alter(topic, 1, TOPIC, "t", ("cleanup.policy", APPEND, "delete")) == DONE
    assert stored(topic) == {"cleanup.policy": "delete"}
    assert alter(topic, 1, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == DONE
    assert stored(topic) == {"cleanup.policy": ""}
    assert describe(topic, 1, TOPIC, "t")["cleanup.policy"].value == ""


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


def test_a_stored_setting_that_is_impossible_hides_no_other_and_can_be_taken_away(topic):
    config = {"retention.ms": "5", "segment.bytes": "1", "of.the.future": "x"}
    topic.zookeeper.put(ConfigZNode.topic_path("t"), ConfigZNode(config=config).encode())
    assert alter(topic, 1, TOPIC, "t", ("segment.ms", SET, "9")) == DONE
    assert topic[1].logs.logs[TP].config.retention_ms == 5
    assert segment_bytes(topic[1]) == 1 << 30
    assert alter(topic, 1, TOPIC, "t", ("of.the.future", DELETE, None)) == DONE
    assert "of.the.future" not in stored(topic)


# --- who was away ---


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


@pytest.mark.parametrize("after_ms", range(10))
def test_a_broker_killed_at_any_moment_of_a_change_leaves_all_or_nothing(topic, after_ms):
    send_alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    topic.loop.run_for(after_ms)
    topic[1].kill()
    topic.loop.run_for(SOON_MS)
    expected = 1000 if stored(topic) else 1 << 30
    assert [segment_bytes(topic[b]) for b in (2, 3)] == [expected] * 2


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


# --- brokers ---


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


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "log.dirs",
            "/x",
            "'log.dirs' can't be changed at run time: change it in the broker's file and "
            "restart it",
        ),
        ("log.roll.hours", "1", "'log.roll.hours' is another name of 'log.roll.ms': set that one"),
        (
            "log.retention.mss",
            "1",
            "there is no setting 'log.retention.mss', did you mean 'log.retention.ms'?",
        ),
        (
            "message.max.bytes",
            "200000000",
            "message.max.bytes=200000000 must not be above socket.request.max.bytes=104857600",
        ),
    ],
)
def test_what_a_running_broker_can_not_take_is_refused(topic, key, value, message):
    for name in ("1", ""):
        assert alter(topic, 1, BROKER, name, (key, SET, value)) == (
            ErrorCode.INVALID_CONFIG,
            message,
        )


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (BROKER, "9", "there is no live broker 9; alive are [1, 2, 3]"),
        (BROKER, "01", "'01' is not a broker's id"),
        (BROKER, "x", "'x' is not a broker's id"),
        (8, "x", "broker 1 can't alter the loggers of broker 'x': send the request to that broker"),
        (16, "x", "resources of type 16 have no settings here"),
    ],
)
def test_who_has_no_settings_is_told(topic, kind, name, message):
    assert alter(topic, 1, kind, name, ("log.segment.bytes", SET, "1000")) == (
        ErrorCode.INVALID_REQUEST,
        message,
    )


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


def test_settings_of_kafka_without_effect_are_taken_shown_and_logged(topic, caplog):
    assert alter(topic, 1, TOPIC, "t", ("preallocate", SET, "true"))[0] == 0
    assert alter(topic, 1, TOPIC, "t", ("remote.storage.enable", SET, "false"))[0] == 0
    assert alter(topic, 1, BROKER, "", ("num.io.threads", SET, "4"))[0] == 0
    shown = describe(topic, 1, TOPIC, "t")
    assert shown["preallocate"].value == "true"
    # What topics alone have is shown where this one does not set it, too.
    assert shown["remote.log.copy.disable"].value == "false"
    logged = [each.getMessage() for each in caplog.records]
    assert "preallocate of topic 't' has no effect: segments grow as they are written" in logged
    assert any(each.startswith("num.io.threads of all brokers has no effect: ") for each in logged)
    assert alter(topic, 1, TOPIC, "t", ("remote.storage.enable", SET, "true")) == (
        ErrorCode.INVALID_CONFIG,
        "remote.storage.enable=true: must be false: there is no remote storage",
    )


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


# --- unclean elections ---


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


# --- what is told ---


def test_sources_and_synonyms_tell_where_a_value_comes_from(topic):
    alter(topic, 1, BROKER, "1", ("log.segment.bytes", SET, "1000"))
    alter(topic, 1, BROKER, "", ("log.segment.bytes", SET, "2000"))
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "3000"))
    topic.loop.run_for(SOON_MS)
    own = describe(topic, 1, TOPIC, "t")["segment.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("3000", 1, False)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("segment.bytes", "3000", 1),
        ("log.segment.bytes", "1000", 2),
        ("log.segment.bytes", "2000", 3),
        ("log.segment.bytes", str(1 << 30), 5),
    ]
    broker = describe(topic, 1, BROKER, "1")
    assert (broker["log.segment.bytes"].value, broker["log.segment.bytes"].config_source) == (
        "1000",
        2,
    )
    assert (broker["broker.id"].config_source, broker["broker.id"].read_only) == (4, True)
    assert all(entry.documentation for entry in broker.values())
    assert describe(topic, 2, BROKER, "2")["log.segment.bytes"].config_source == 3
    assert [(e.name, e.config_source) for e in describe(topic, 3, BROKER, "").values()] == [
        ("log.segment.bytes", 3)
    ]
