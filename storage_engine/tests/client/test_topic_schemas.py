"""How a client learns the schemas of topics: from leaders, again when one has no answer, and never
from brokers that know no typed topics."""

import pytest

from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.apis.describe_schemas import (
    API,
    DescribedSchema,
    DescribeSchemasResponse,
)
from storage_engine.tests.client.fake_cluster import Fault

SCHEMA = new_schema(parse_ddl("id BIGINT, n INT"), ["id"])


@pytest.fixture
def typed(fake):
    """A topic led by brokers 2 and 3, who tell its schema."""
    fake.add_topic("t", [2, 3])
    fake.api_versions[API.key] = API.versions
    fake.schema = SCHEMA.to_json()
    fake.codes = {}

    def answer(broker_id, _name, request):
        (topic,) = request.topics
        row = DescribedSchema(
            topic=topic,
            error_code=fake.codes.get(broker_id, 0),
            topic_id=fake.topic_ids[topic],
            schema=fake.schema,
        )
        return DescribeSchemasResponse(topics=[row])

    fake.admin = answer
    return fake


def asked_brokers(fake):
    return [each.broker_id for each in fake.asked if each.api == API.name]


def test_a_leader_is_asked_once_and_again_on_demand(typed, cluster):
    schemas = TopicSchemas(cluster)
    known = KnownSchema(typed.topic_ids["t"], SCHEMA)
    assert [schemas.get("t"), schemas.get("t")] == [known, known]
    assert asked_brokers(typed) == [2]
    typed.create_again("t", [2, 3])
    typed.schema = None
    assert schemas.refresh("t") is None
    assert [schemas.get("t"), schemas.get("t")] == [None, None]
    assert asked_brokers(typed) == [2, 2]


def test_another_leader_is_asked_where_one_has_no_answer(typed, cluster):
    typed.codes = {2: int(ErrorCode.LEADER_NOT_AVAILABLE)}
    assert TopicSchemas(cluster).get("t") is not None
    assert asked_brokers(typed) == [2, 3]
    typed.codes = {}
    typed.fault = lambda asked: (
        Fault.DROP if (asked.api, asked.broker_id) == (API.name, 2) else None
    )
    assert TopicSchemas(cluster).get("t") is not None
    assert asked_brokers(typed) == [2, 3, 2, 3]


def test_brokers_without_typed_topics_have_none(fake, cluster):
    fake.add_topic("t", [1])
    assert TopicSchemas(cluster).get("t") is None


def test_a_topic_that_does_not_exist_or_may_not_be_seen_is_an_error_at_once(typed, cluster):
    with pytest.raises(KafkaError) as caught:
        TopicSchemas(cluster).get("none")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    typed.codes = dict.fromkeys((1, 2, 3), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError) as caught:
        TopicSchemas(cluster).get("t")
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(asked_brokers(typed)) == 1


def test_a_schema_of_a_newer_form_says_that_the_client_is_old(typed, cluster):
    typed.schema = '{"format":2}'
    with pytest.raises(ConfigError, match="the schema of topic 't' can't be read, is this client"):
        TopicSchemas(cluster).get("t")
