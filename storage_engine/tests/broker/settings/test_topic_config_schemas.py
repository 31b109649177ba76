"""Schemas of topics on brokers: what is taken and refused, who tells them.
Real brokers over a simulated ZooKeeper and network."""

import json

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import create_topic_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema
from storage_engine.protocol.apis import describe_schemas
from storage_engine.protocol.messages import create_topics, describe_configs
from storage_engine.tests.broker.settings.settings_requests import (
    APPEND,
    DELETE,
    DONE,
    SET,
    TOPIC,
    alter,
    describe,
    replace_all,
)

TP = TopicPartition("typed", 0)
SOON_MS = 50

SCHEMA = new_schema(parse_ddl("id BIGINT, fare FLOAT, note STRING"), ["id"])
NEXT = SCHEMA.evolved(parse_ddl("id BIGINT, fare DOUBLE, more INT"))
KEYLESS = new_schema(parse_ddl("id BIGINT"))


def create(cluster, schema=SCHEMA, name="typed", *, version=5, validate_only=False, **settings):
    text = schema.to_json() if isinstance(schema, TopicSchema) else schema
    given = {key.replace("_", "."): value for key, value in settings.items()}
    request = create_topic_request(name, 1, {SCHEMA_SETTING: text, **given})
    request.validate_only = validate_only
    (row,) = cluster.answer(cluster.ask_controller(create_topics.API, version, request)).topics
    return row


def tell(cluster, broker, *topics):
    request = describe_schemas.DescribeSchemasRequest(topics=topics)
    return cluster.answer(cluster.ask(broker, describe_schemas.API, 0, request)).topics


def versions(cluster):
    """How many versions each broker knows."""
    rows = [tell(cluster, broker.id, "typed")[0] for broker in cluster.brokers]
    return [len(TopicSchema.from_json(row.schema).versions) for row in rows]


@pytest.fixture
def typed(cluster):
    assert create(cluster).error_code == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    return cluster


def test_a_topic_is_typed_from_its_creation_on_and_its_logs_know_the_schema(typed):
    typed.loop.run_until(lambda: all(TP in broker.logs.logs for broker in typed.brokers))
    for broker in typed.brokers:
        assert broker.logs.logs[TP].config.schema == SCHEMA
    (row,) = tell(typed, 2, "typed")
    assert row.topic_id == typed[1].metadata.topic_id("typed")
    assert TopicSchema.from_json(row.schema) == SCHEMA


def test_a_new_version_reaches_all_brokers(typed):
    assert alter(typed, 2, TOPIC, "typed", (SCHEMA_SETTING, SET, NEXT.to_json())) == DONE
    assert tell(typed, 2, "typed")[0].schema == NEXT.to_json(), "who was asked knows it at once"
    typed.loop.run_for(SOON_MS)
    assert versions(typed) == [2, 2, 2]
    assert [b.logs.logs[TP].config.schema for b in typed.brokers] == [NEXT] * 3


def test_a_schema_is_stored_in_its_usual_form(typed):
    spaced = json.dumps(json.loads(NEXT.to_json()), indent=3)
    assert alter(typed, 2, TOPIC, "typed", (SCHEMA_SETTING, SET, spaced)) == DONE
    assert describe(typed, 1, TOPIC, "typed")[SCHEMA_SETTING].value == NEXT.to_json()


OTHER = SCHEMA.evolved(parse_ddl("id BIGINT, fare FLOAT, note STRING, other INT"))


REFUSED = [
    (SET, SCHEMA.to_json(), "the topic's schema has 2 versions, and 1 were given"),
    (SET, OTHER.to_json(), "version 2 is not as the topic's schema has it"),
    (SET, "{", "the schema is no JSON"),
    (SET, "x" * 300_000, "the schema has more than 256 KiB"),
    (DELETE, None, "can't be removed"),
    (APPEND, SCHEMA.to_json(), "is not a list: it can only be set or deleted"),
]


def test_a_change_that_the_rows_would_not_outlive_is_refused(typed):
    assert alter(typed, 1, TOPIC, "typed", (SCHEMA_SETTING, SET, NEXT.to_json())) == DONE
    for operation, value, message in REFUSED:
        change = (SCHEMA_SETTING, operation, value)
        for validate_only in (True, False):
            code, text = alter(typed, 1, TOPIC, "typed", change, validate_only=validate_only)
            assert code is ErrorCode.INVALID_CONFIG
            assert (text or "").startswith(SCHEMA_SETTING)
            assert message in (text or "")
    assert describe(typed, 1, TOPIC, "typed")[SCHEMA_SETTING].value == NEXT.to_json()


def test_a_topic_does_not_become_typed_or_untyped(topic):
    change = (SCHEMA_SETTING, SET, SCHEMA.to_json())
    for name in ("t", "__consumer_offsets"):
        code, text = alter(topic, 1, TOPIC, name, change)
        assert code in (ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), text
    assert "typed from its creation on or never" in (alter(topic, 1, TOPIC, "t", change)[1] or "")
    assert tell(topic, 1, "t")[0].schema is None


def test_an_alteration_that_replaces_all_settings_has_to_name_the_schema(typed):
    code, text = replace_all(typed, 1, TOPIC, "typed", retention_ms="7")
    assert code is ErrorCode.INVALID_CONFIG
    assert "AlterConfigs replaces all settings: name it" in (text or "")
    both = {"retention_ms": "7", "headrace_schema": SCHEMA.to_json()}
    assert replace_all(typed, 1, TOPIC, "typed", **both) == DONE


def test_compaction_needs_a_key_at_the_creation_and_later(cluster):
    refused = create(cluster, KEYLESS, cleanup_policy="compact")
    assert ErrorCode.of(refused.error_code) is ErrorCode.INVALID_CONFIG
    assert "cleanup.policy=compact needs a key" in refused.error_message
    assert create(cluster, KEYLESS).error_code == 0
    for policy in ("compact", "delete,compact"):
        code, text = alter(cluster, 1, TOPIC, "typed", ("cleanup.policy", SET, policy))
        assert (code, "needs a key" in (text or "")) == (ErrorCode.INVALID_CONFIG, True)
    assert alter(cluster, 1, TOPIC, "typed", ("retention.ms", SET, "7")) == DONE
    assert create(cluster, name="keyed", cleanup_policy="compact").error_code == 0


def test_a_broker_whose_topics_are_compacted_takes_no_typed_topic_without_a_key(tmp_path):
    made = SimulatedCluster(tmp_path, log_cleanup_policy="compact")
    assert "needs a key" in create(made, KEYLESS).error_message
    assert create(made, KEYLESS, cleanup_policy="delete").error_code == 0
    code, text = alter(made, 1, TOPIC, "typed", ("cleanup.policy", DELETE, None))
    assert (code, "needs a key" in (text or "")) == (ErrorCode.INVALID_CONFIG, True)
    made.close()


def test_a_schema_that_can_not_be_is_refused_at_the_creation(cluster):
    for text in ("{}", "[" * 100_000, SCHEMA.to_json().replace("BIGINT", "STRUCT<a: INT>")):
        for validate_only in (True, False):
            row = create(cluster, text, validate_only=validate_only)
            assert ErrorCode.of(row.error_code) is ErrorCode.INVALID_CONFIG
            assert row.error_message.startswith("headrace.schema: ")
    assert create(cluster, name="__consumer_offsets").error_code != 0
    assert tell(cluster, 1, "typed")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_without_a_schema_has_no_setting_of_that_name(topic):
    """Other clients compare the settings that topics have."""
    plain = topic.create_topic("plain")
    assert SCHEMA_SETTING not in {config.name for config in plain.configs}
    assert SCHEMA_SETTING not in describe(topic, 1, TOPIC, "t")
    assert SCHEMA_SETTING in {config.name for config in create(topic).configs}


def test_a_schema_too_long_for_an_old_answer_is_told_without_its_value(cluster):
    wide = new_schema(parse_ddl(", ".join(f"column_{n} BIGINT" for n in range(1000))))
    assert len(wide.to_json()) > 0x7FFF
    assert create(cluster, wide).error_code == 0
    resource = describe_configs.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="typed", configuration_keys=[SCHEMA_SETTING]
    )
    for version, value in ((3, None), (4, wide.to_json())):
        request = describe_configs.DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=False
        )
        answer = cluster.answer(cluster.ask(1, describe_configs.API, version, request))
        (entry,) = answer.results[0].configs
        assert entry.value == value


# --- who tells ---


def test_brokers_without_a_replica_tell_as_well_and_replicas_also_without_zookeeper(tmp_path):
    made = SimulatedCluster(tmp_path, default_replication_factor="1")
    assert create(made).error_code == 0
    leader = made.state(TP).leader
    stranger = next(broker.id for broker in made.brokers if broker.id != leader)
    made.loop.run_until(lambda: "typed" in made[stranger].metadata)
    assert versions(made) == [1, 1, 1]
    assert alter(made, stranger, TOPIC, "typed", (SCHEMA_SETTING, SET, NEXT.to_json())) == DONE
    made.loop.run_for(SOON_MS)
    assert versions(made) == [2, 2, 2]
    for broker in made.brokers:
        broker.session.cut_off()
    assert tell(made, leader, "typed")[0].schema == NEXT.to_json()
    before_ms = made.loop.monotonic_ms()
    (row,) = tell(made, stranger, "typed")
    assert ErrorCode.of(row.error_code).retriable
    assert row.schema is None
    assert made.loop.monotonic_ms() - before_ms < 2000
    made.close()


def test_each_topic_of_a_request_is_answered_and_too_many_are_refused(typed):
    rows = tell(typed, 1, "none", "typed", "typed")
    assert [(row.topic, ErrorCode.of(row.error_code)) for row in rows] == [
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("typed", ErrorCode.NONE),
    ]
    many = tell(typed, 1, *map(str, range(describe_schemas.MAX_TOPICS + 1)))
    assert {ErrorCode.of(row.error_code) for row in many} == {ErrorCode.INVALID_REQUEST}
    assert tell(typed, 1) == []


def test_a_topic_made_anew_has_the_schema_of_its_own(typed):
    old = tell(typed, 1, "typed")[0].topic_id
    typed.answer(typed.delete_topic("typed"))
    assert create(typed, KEYLESS).error_code == 0
    typed.loop.run_for(SOON_MS)
    for broker in typed.brokers:
        (row,) = tell(typed, broker.id, "typed")
        assert row.topic_id != old
        assert row.schema == KEYLESS.to_json()
