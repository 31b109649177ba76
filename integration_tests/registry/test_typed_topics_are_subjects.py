"""The schema of a typed topic is a subject by itself, in order, and never in place of another's."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_registry.tests.registry_support import (
    STRING,
    Client,
    quoted,
    record,
    running_registry,
)
from integration_tests.registry.test_registry_of_a_cluster import settings_for
from integration_tests.support.cluster_support import wait_until
from storage_engine.client.admin.schemas import alter_schema, create_typed_topics, schema_from
from storage_engine.client.admin.topics import NewTopic, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.tools.cli import main

DDL = "id BIGINT NOT NULL, fare DOUBLE"
WIDER = f"{DDL}, tag STRING"


@pytest.fixture(scope="module")
def clients(cluster) -> Iterator[list[Client]]:
    settings = settings_for(cluster, has_typed_topics=True)
    with running_registry(settings) as first, running_registry(settings) as second:
        both = [Client(first), Client(second)]
        yield both
        for each in both:
            each.close()


@pytest.fixture
def topic() -> str:
    return f"rides-{uuid.uuid4().hex[:8]}"


def create(cluster, *topics: str) -> None:
    with Cluster(cluster.bootstrap_servers) as found:
        new = [NewTopic(name=each, partitions=1, replication_factor=3) for each in topics]
        create_typed_topics(found, new, schema_from(DDL))


def versions(client: Client, topic: str) -> list[int]:
    answer = client.ask("GET", f"/subjects/{quoted(f'{topic}-value')}/versions")
    return answer.json() if answer.is_success else []


def text_of(client: Client, topic: str, version: Any = "latest") -> str:
    found = client.get(f"/subjects/{quoted(f'{topic}-value')}/versions/{version}")
    return str(found["schema"])


def problem_of(client: Client, topic: str) -> str | None:
    rows = {each["topic"]: each for each in client.get("/typed-topics")}
    return rows.get(topic, {}).get("problem")


def test_a_new_topic_and_each_of_its_versions_are_registered_in_order(cluster, clients, topic):
    create(cluster, topic)
    for client in clients:
        wait_until(lambda client=client: versions(client, topic) == [1], "its first version")
    with Cluster(cluster.bootstrap_servers) as found:
        schema = alter_schema(found, topic, WIDER)
    for client in clients:
        wait_until(lambda client=client: versions(client, topic) == [1, 2], "its second version")
    for number in (1, 2):
        wanted = avro_text(schema, schema.version(number), topic)
        assert text_of(clients[0], topic, number) == wanted
    # Nothing is registered again, and nothing is told.
    assert problem_of(clients[0], topic) is None
    subject = quoted(f"{topic}-value")
    assert clients[0].delete(f"/subjects/{subject}") == [1, 2]
    assert clients[0].delete(f"/subjects/{subject}", permanent="true") == [1, 2]
    wait_until(lambda: versions(clients[0], topic) == [1, 2], "both again")


def test_many_topics_are_registered_within_seconds(cluster, clients):
    topics = [f"many-{uuid.uuid4().hex[:8]}" for _ in range(20)]
    create(cluster, *topics)
    wait_until(lambda: all(versions(clients[1], each) == [1] for each in topics), "all of them")


def test_a_subject_with_another_schema_is_left_as_it_is(cluster, clients, topic, capsys):
    client = clients[0]
    client.register(f"{topic}-value", STRING)
    create(cluster, topic)
    for each in clients:
        wait_until(lambda each=each: problem_of(each, topic) is not None, "the problem is told")
    assert (versions(client, topic), text_of(client, topic)) == ([1], STRING)
    assert main(["schemas", "topics", "--registry", str(client.http.base_url)]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith(topic))
    assert "ncompatible" in line or "MISMATCH" in line, line


def test_the_subject_of_a_deleted_topic_stays(cluster, clients, topic):
    create(cluster, topic)
    wait_until(lambda: versions(clients[0], topic) == [1], "its version")
    with Cluster(cluster.bootstrap_servers) as found:
        delete_topics(found, [topic])
    wait_until(
        lambda: topic not in {each["topic"] for each in clients[0].get("/typed-topics")},
        "the topic is gone",
    )
    assert versions(clients[0], topic) == [1]


def test_what_the_columns_can_not_take_is_refused_under_the_topics_subject(cluster, clients, topic):
    create(cluster, topic)
    for each in clients:
        wait_until(lambda each=each: versions(each, topic) == [1], "its version")
    path = f"/subjects/{quoted(f'{topic}-value')}/versions"
    own = json.loads(text_of(clients[0], topic))
    for each in clients:
        each.put(f"/config/{quoted(f'{topic}-value')}", {"compatibility": "NONE"})
        refusal = each.refused("POST", path, {"schema": record(own["name"], "fare")})
        assert refusal == (409, 409)
        assert each.refused("POST", path, {"schema": STRING}) == (409, 409)
    narrow = {**own, "fields": [{"name": "id", "type": "int"}]}
    assert clients[1].register(f"{topic}-value", json.dumps(narrow)) > 0
