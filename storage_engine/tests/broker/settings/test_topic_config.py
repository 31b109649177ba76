"""Settings of topics: over those of their broker, each with an effect, and checked."""

import pytest

from storage_engine.broker.settings.topic_config import TopicConfig, validate_topic_config
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import BY_TOPIC_KEY
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.broker.settings.broker_configs import config


def test_a_topic_overrides_its_broker() -> None:
    broker = config(log_retention_hours="1", message_max_bytes="5000", min_insync_replicas="2")
    plain = TopicConfig.of(broker, {})
    assert plain.log.retention_ms == 3_600_000
    assert plain.log.max_message_bytes == 5000
    assert plain.min_insync_replicas == 2
    special = TopicConfig.of(
        broker, {"retention.ms": "9", "unclean.leader.election.enable": "true"}
    )
    assert special.log.retention_ms == 9
    assert special.log.max_message_bytes == 5000
    assert special.unclean_leader_election_enable


def test_the_table_and_the_log_have_the_same_defaults() -> None:
    assert TopicConfig.of(config(), {}).log == LogConfig()


def test_every_topic_setting_reaches_its_user() -> None:
    """A setting that is taken has an effect."""
    changed = {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "max.message.bytes": "77",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "77",
        "message.timestamp.after.max.ms": "77",
        "segment.bytes": "77",
        "segment.ms": "77",
        "segment.jitter.ms": "77",
        "segment.index.bytes": "77",
        "index.interval.bytes": "77",
        "retention.ms": "77",
        "retention.bytes": "77",
        "file.delete.delay.ms": "77",
        "delete.retention.ms": "77",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "77",
        "max.compaction.lag.ms": "77",
        "flush.messages": "77",
        "flush.ms": "77",
        "flush.before.ack": "true",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
        "headrace.schema": new_schema(parse_ddl("id INT")).to_json(),
    }
    only_one_value = {"compression.type"}
    without_effect = {name for name, row in BY_TOPIC_KEY.items() if row.without_effect}
    of_the_lake = {name for name in BY_TOPIC_KEY if name.startswith("headrace.table.")}
    assert set(changed) | only_one_value | without_effect | of_the_lake == set(BY_TOPIC_KEY)
    for name, text in changed.items():
        assert TopicConfig.of(config(), {name: text}) != TopicConfig.of(config(), {}), name


def test_overrides_are_validated_into_their_usual_form() -> None:
    given = {"unclean.leader.election.enable": "TRUE", "retention.ms": " 5 "}
    assert validate_topic_config(given) == {
        "unclean.leader.election.enable": "true",
        "retention.ms": "5",
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention", "1", "there is no topic setting 'retention', did you mean 'retention.ms'?"),
        ("num.partitions", "1", "there is no topic setting 'num.partitions'"),
        ("segment.bytes", "1", "segment.bytes=1: must be a whole number, 14 or more (bytes)"),
        (
            "cleanup.policy",
            "shrink",
            "cleanup.policy=shrink: must be a comma-separated list of: delete, compact",
        ),
    ],
)
def test_an_impossible_override_is_told(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_config({name: text})
    assert str(caught.value) == message


def test_a_minimum_lag_above_the_maximum_is_told() -> None:
    with pytest.raises(ConfigError, match=r"^min.compaction.lag.ms=9: must not be larger than max"):
        validate_topic_config({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})
