"""Items that a client has no right to are refused, however many turns that takes."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.tests.broker.guards.guarded_cluster import (
    BOB,
    allow_only,
    come_as,
    guarded_cluster,
)
from storage_engine.tests.protocol.apis.struct_classes import api_of

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def cluster(tmp_path):
    made = guarded_cluster(tmp_path)
    assert not made.create_topic("t").error_code
    yield made
    made.close()


def test_a_long_request_is_refused_in_several_turns(cluster) -> None:
    allow_only(cluster, [(AclOperation.DESCRIBE, ResourceType.TOPIC, "t")])
    come_as(cluster, BOB)
    names = [f"topic-{number}" for number in range(5_000)]
    asked = MetadataRequest(topics=[*names, "t"])
    rows = cluster.answer(cluster.ask(1, METADATA, 9, asked)).topics
    assert {row.topic: row.error_code for row in rows} == {**dict.fromkeys(names, DENIED), "t": 0}
    delete, request = api_of(20)
    answer = cluster.answer(cluster.ask(1, delete, 4, request(topic_names=names, timeout_ms=1000)))
    assert [row.error_code for row in answer.responses] == [DENIED] * len(names)
