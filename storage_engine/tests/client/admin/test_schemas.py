"""Changes of a topic's schema."""

import pytest

from storage_engine.client.admin.schemas import alter_schema
from storage_engine.core.errors import KafkaError
from storage_engine.tests.client.support.typed_topics import SCHEMA, add_typed_topic


def test_versions_that_two_make_at_once_are_told_to_the_second(fake, cluster):
    add_typed_topic(fake, "t", [1])
    columns = "id BIGINT NOT NULL, tag STRING, fare DOUBLE"
    with pytest.raises(KafkaError, match="somebody else has changed the schema of topic 't'"):
        alter_schema(cluster, "t", f"{columns}, note STRING", based_on=2)
    assert alter_schema(cluster, "t", columns.replace("id", "ID"), based_on=1) == SCHEMA


def test_a_topic_without_a_schema_gets_none(fake, cluster):
    fake.add_topic("t", [1])
    with pytest.raises(KafkaError, match="topic 't' is not typed, and can't become so"):
        alter_schema(cluster, "t", "id INT")
