"""Settings of topics: over those of their broker, each with an effect, and checked."""

import pytest

from storage_engine.broker.settings.topic_config import (
    TopicConfig,
    check_change,
    check_new_topic,
    validate_topic_config,
)
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
        "headrace.foreign.format": "avro",
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


SCHEMA_TEXT = new_schema(parse_ddl("id INT, fare DOUBLE"), ["id"]).to_json()
ODD_TEXT = new_schema(parse_ddl("id INT, `the fare` DOUBLE"), ["id"]).to_json()
FORMAT, SCHEMA = "headrace.foreign.format", "headrace.schema"


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_foreign_format_needs_a_schema(form: str) -> None:
    with pytest.raises(ConfigError, match="is for typed topics") as caught:
        check_new_topic(config(), {FORMAT: form})
    assert "\n" not in str(caught.value)
    check_new_topic(config(), {FORMAT: form, SCHEMA: SCHEMA_TEXT})
    with pytest.raises(ConfigError, match="is for typed topics"):
        check_change(config(), {}, {FORMAT: form})


def test_avro_needs_names_that_avro_has_when_the_topic_is_made_and_when_it_changes() -> None:
    check_new_topic(config(), {SCHEMA: ODD_TEXT, FORMAT: "json"})
    with pytest.raises(ConfigError, match="the column 'the fare' can't be a field of Avro"):
        check_new_topic(config(), {SCHEMA: ODD_TEXT, FORMAT: "avro"})
    odd, plain = {SCHEMA: ODD_TEXT}, {SCHEMA: SCHEMA_TEXT, FORMAT: "avro"}
    with pytest.raises(ConfigError, match="can't be a field of Avro"):
        check_change(config(), odd, {**odd, FORMAT: "avro"})
    evolved = new_schema(parse_ddl("id INT, fare DOUBLE"), ["id"]).evolved(
        parse_ddl("id INT, fare DOUBLE, `a b` INT")
    )
    with pytest.raises(ConfigError, match="the column 'a b'"):
        check_change(config(), plain, {**plain, SCHEMA: evolved.to_json()})
    check_change(config(), plain, {SCHEMA: SCHEMA_TEXT})


def test_a_stored_format_that_is_impossible_hinders_no_other_change() -> None:
    stored = {SCHEMA: ODD_TEXT, FORMAT: "avro"}
    check_change(config(), stored, {**stored, "retention.ms": "5"})
    check_change(config(), {FORMAT: "avro"}, {FORMAT: "avro", "retention.ms": "5"})


def test_an_unknown_foreign_format_is_told() -> None:
    with pytest.raises(ConfigError, match=r"headrace.foreign.format=xml: must be json or avro"):
        validate_topic_config({FORMAT: "xml"})
