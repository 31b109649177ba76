"""What a producer knows of typed topics, and for how long."""

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.tables.typed_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    TypedTopics,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import describe_schemas
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.tests.client.support.typed_topics import SCHEMA, add_typed_topic

Result = DescribeConfigsResponse.DescribeConfigsResult


@pytest.fixture
def settings(fake):
    """The answer about the settings of a topic; topic t has a schema, u has none."""
    add_typed_topic(fake, "t", [1])
    fake.add_topic("u", [1])
    made = Result(resource_name="t", resource_type=2, error_message=None, configs=[])

    def answer(_broker_id, api, message):
        if api == describe_schemas.API.name:
            return fake._described_schemas(message)
        return DescribeConfigsResponse(results=[made])

    fake.admin = answer
    return made


def topics_of(fake, max_age_ms=60_000):
    return TypedTopics(Cluster(fake.bootstrap_servers), max_age_ms=max_age_ms)


@pytest.mark.parametrize("value", ["2000", None])
def test_the_largest_batch_is_the_topics_setting_or_its_default(fake, settings, value):
    name = "max.message.bytes"
    settings.configs = [Result.DescribeConfigsResourceResult(name=name, value=value)]
    topics = topics_of(fake)
    topics.learn("t")
    found = topics.get("t")
    assert found.known.schema == SCHEMA
    assert found.largest_batch_bytes == int(value or DEFAULT_MAX_MESSAGE_BYTES)
    settings.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics.learn("t")
    assert topics.get("t").largest_batch_bytes == DEFAULT_MAX_MESSAGE_BYTES
    topics.close()


def test_what_is_known_grows_old_or_is_forgotten_and_a_topic_without_a_schema_is_known_too(
    fake, settings
):
    topics = topics_of(fake)
    assert not topics.is_known("u")
    topics.learn("u")
    assert topics.is_known("u") and topics.get("u") is None
    topics.learn("t")
    topics.forget("t")
    assert not topics.is_known("t") and topics.get("t") is None
    topics.close()
    old = topics_of(fake, max_age_ms=0)
    old.learn("t")
    assert not old.is_known("t") and old.get("t") is not None
    old.close()
