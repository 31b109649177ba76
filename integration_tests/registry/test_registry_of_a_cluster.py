"""Two registries of one cluster, asked over HTTP: changes at either are seen at both."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_registry.registry_settings import RegistrySettings
from headrace_registry.tests.registry_support import (
    INT,
    LONG,
    STRING,
    Client,
    quoted,
    record,
    running_registry,
)
from integration_tests.support.cluster_support import wait_until
from storage_engine.client import Producer
from storage_engine.client.admin.topics import create_topic, describe_topic_configs
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ConfigError

SESSION_MS = 6_000


def settings_for(cluster, **more: Any) -> RegistrySettings:
    topic = more.pop("topic", f"_schemas-{uuid.uuid4().hex[:8]}")
    return RegistrySettings(
        bootstrap_servers=cluster.bootstrap_servers,
        port=0,
        topic=topic,
        group=topic,
        session_timeout_ms=SESSION_MS,
        **{"has_typed_topics": False, **more},
    )


@pytest.fixture(scope="module")
def settings(cluster) -> RegistrySettings:
    return settings_for(cluster)


@pytest.fixture(scope="module")
def clients(settings) -> Iterator[list[Client]]:
    """Of the registry that writes, and of one that sends changes on."""
    with running_registry(settings) as first, running_registry(settings) as second:
        both = [Client(first), Client(second)]
        yield both
        for each in both:
            each.close()


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def client(clients, request) -> Client:
    return clients[request.param]


@pytest.fixture
def subject() -> str:
    return f"{uuid.uuid4().hex[:8]}/ü 1-value"


def test_a_schema_is_registered_found_and_read_everywhere(clients, client, subject) -> None:
    text = record(f"R{uuid.uuid4().hex[:8]}", "a")
    schema_id = client.register(subject, text)
    for each in clients:
        wait_until(lambda each=each: each.ask("GET", f"/schemas/ids/{schema_id}").is_success, "it")
        assert json.loads(each.get(f"/schemas/ids/{schema_id}")["schema"]) == json.loads(text)
        assert each.get(f"/schemas/ids/{schema_id}/schema") == json.loads(text)
        assert each.get(f"/schemas/ids/{schema_id}/subjects") == [subject]
        assert each.get(f"/schemas/ids/{schema_id}/versions") == [
            {"subject": subject, "version": 1}
        ]
        assert each.get(f"/subjects/{quoted(subject)}/versions") == [1]
        latest = each.get(f"/subjects/{quoted(subject)}/versions/latest")
        assert (latest["subject"], latest["version"], latest["id"]) == (subject, 1, schema_id)
        assert subject in each.get("/subjects")
        assert each.get("/subjects", subjectPrefix=subject) == [subject]
        found = each.post(f"/subjects/{quoted(subject)}", {"schema": text})
        assert (found["version"], found["id"]) == (1, schema_id)
    assert client.register(subject, text) == schema_id
    assert client.register(f"{subject}-2", text) == schema_id


def test_a_change_is_seen_where_it_was_made_once_it_is_answered(client, subject) -> None:
    path = f"/subjects/{quoted(subject)}"
    first = client.register(subject, record("A", "a"))
    with_default = json.loads(record("A", "a"))
    with_default["fields"].append({"name": "b", "type": "int", "default": 1})
    # Forwarded changes are answered when the writer has read them back.
    assert client.register(subject, json.dumps(with_default)) > first
    assert client.refused("POST", f"{path}/versions", {"schema": STRING}) == (409, 409)
    assert client.delete(f"{path}/versions/1") == 1
    assert client.delete(path) == [2]
    assert client.refused("DELETE", path) == (404, 40404)
    assert client.delete(path, permanent="true") == [1, 2]
    assert client.refused("DELETE", path) == (404, 40401)


def test_levels_and_modes_are_set_for_all_and_for_one(clients, subject) -> None:
    writer = clients[0]
    path = quoted(subject)
    assert writer.refused("GET", f"/config/{path}") == (404, 40408)
    assert writer.get(f"/config/{path}", defaultToGlobal="true") == {
        "compatibilityLevel": "BACKWARD"
    }
    assert writer.put(f"/config/{path}", {"compatibility": "none"}) == {"compatibility": "NONE"}
    assert writer.get(f"/config/{path}") == {"compatibilityLevel": "NONE"}
    writer.register(subject, INT)
    writer.register(subject, record("B", "b"))
    assert writer.delete(f"/config/{path}") == {"compatibilityLevel": "NONE"}
    assert writer.refused("PUT", "/config", {"compatibility": "SIDEWAYS"}) == (422, 42203)
    assert writer.refused("GET", f"/mode/{path}") == (404, 40409)
    assert writer.put(f"/mode/{path}", {"mode": "READONLY"}) == {"mode": "READONLY"}
    refusal = writer.refused("POST", f"/subjects/{path}/versions", {"schema": LONG})
    assert refusal == (422, 42205)
    assert writer.refused("DELETE", f"/subjects/{path}") == (422, 42205)
    assert writer.delete(f"/mode/{path}") == {"mode": "READONLY"}
    assert writer.refused("PUT", "/mode", {"mode": "FAST"}) == (422, 42204)


def test_compatibility_is_told_with_reasons(client, subject) -> None:
    path = f"/compatibility/subjects/{quoted(subject)}/versions"
    body = {"schema": record("A", "a", "b")}
    assert client.post(path, body) == {"is_compatible": True}
    assert client.refused("POST", f"{path}/latest", body) == (404, 40401)
    client.register(subject, record("A", "a"))

    def verdict() -> Any:
        return client.post(f"{path}/latest", body, verbose="true")

    wait_until(lambda: client.ask("POST", f"{path}/latest", body).is_success, "it is read")
    assert verdict()["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verdict()["messages"][0]
    assert client.post(path, body) == {"is_compatible": False}
    assert client.post(path, {"schema": record("A", "a")}) == {"is_compatible": True}
    assert client.refused("POST", f"{path}/7", body) == (404, 40402)


def test_lists_are_cut_and_filtered(clients, subject) -> None:
    writer = clients[0]
    path = f"/subjects/{quoted(subject)}"
    writer.put(f"/config/{quoted(subject)}", {"compatibility": "NONE"})
    for text in (INT, LONG, STRING):
        writer.register(subject, text)
    writer.delete(f"{path}/versions/2")
    assert writer.get(f"{path}/versions") == [1, 3]
    assert writer.get(f"{path}/versions", deleted="true") == [1, 2, 3]
    assert writer.get(f"{path}/versions", deletedOnly="true") == [2]
    assert writer.get(f"{path}/versions", offset="1", limit="1") == [3]
    rows = writer.get("/schemas", subjectPrefix=subject, latestOnly="true")
    assert [(each["subject"], each["version"]) for each in rows] == [(subject, 3)]
    assert writer.refused("GET", f"{path}/versions/2") == (404, 40402)
    assert writer.get(f"{path}/versions/2", deleted="true")["deleted"] is True
    assert writer.refused("GET", f"{path}/versions", limit="x") == (400, 400)
    writer.delete(path)
    assert subject not in writer.get("/subjects")
    assert subject in writer.get("/subjects", deleted="true")
    assert subject in writer.get("/subjects", deletedOnly="true")


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/subjects/nobody/versions", (404, 40401)),
        ("/subjects/nobody/versions/1", (404, 40401)),
        ("/subjects/nobody/versions/a", (422, 42202)),
        ("/subjects/nobody/versions/0", (422, 42202)),
        ("/subjects/nobody/versions/2147483648", (422, 42202)),
        ("/schemas/ids/999999", (404, 40403)),
        ("/schemas/ids/x", (404, 404)),
        ("/subjects/%3A.ctx%3Aa/versions", (422, 42208)),
        ("/subjects/%ff/versions", (400, 400)),
        ("/nothing", (404, 404)),
    ],
)
def test_what_is_not_there_has_confluents_codes(clients, path, refusal) -> None:
    assert clients[0].refused("GET", path) == refusal


def test_bad_bodies_are_refused_by_one_line(clients) -> None:
    client, path = clients[0], "/subjects/bad-value/versions"
    assert client.refused("POST", path, {"schema": "no schema {"}) == (422, 42201)
    assert client.refused("POST", path, {"schema": ""}) == (422, 42201)
    assert client.refused("POST", path, {"schema": INT, "schemaType": "XML"}) == (422, 42201)
    assert client.refused("POST", path, {"schema": INT, "unheard": 1}) == (422, 422)
    assert client.refused("POST", path, [INT]) == (400, 400)
    missing = {"name": "n", "subject": "nobody", "version": 1}
    assert client.refused("POST", path, {"schema": INT, "references": [missing]}) == (422, 42201)
    headers = {"content-type": "application/json"}
    for content, status in (
        (b"{", 400),
        (b"[" * 200_000, 400),
        (b'{"schema": "\\ud800"}', 400),
        (b'{"schema": "' + b"x" * (7 << 20), 413),
    ):
        answer = client.http.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (status, status)
    form = client.http.post(path, content=b"{}", headers={"content-type": "text/plain"})
    assert form.status_code == 415
    assert "bad-value" not in client.get("/subjects")


def test_a_schema_that_no_record_holds_is_told_to_be_too_large(clients) -> None:
    fields = [{"name": f"f{number:06}", "type": "int"} for number in range(28_000)]
    text = json.dumps({"type": "record", "name": "Large", "fields": fields})
    # A record of `_schemas` has it as text within JSON, which is longer.
    assert len(text) < 1 << 20 < len(json.dumps(text))
    path = "/subjects/large-value/versions"
    assert clients[0].refused("POST", path, {"schema": text}) == (422, 42209)
    assert clients[0].refused("POST", path, {"schema": text + " " * (4 << 20)}) == (422, 42201)
    assert clients[0].register("after-value", record("After", "a")) > 0


def test_content_types_follow_what_a_client_accepts(clients) -> None:
    for accept, kind in (
        ("*/*", "application/vnd.schemaregistry.v1+json"),
        ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry.v1+json"),
        ("application/json", "application/json"),
    ):
        answer = clients[0].http.get("/subjects", headers={"accept": accept})
        assert answer.headers["content-type"] == kind


def test_types_contexts_and_the_root_are_answered(clients) -> None:
    assert "AVRO" in clients[0].get("/schemas/types")
    assert clients[0].get("/contexts") == ["."]
    assert clients[0].get("/") == {}


def test_a_topic_that_another_registry_wrote_is_served_as_it_is(cluster) -> None:
    settings = settings_for(cluster)
    rows = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"users-value","version":1,"magic":1}',
            '{"subject":"users-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"users-value","version":2,"magic":1}',
            '{"subject":"users-value","version":2,"id":9,"md5":"x","schemaType":"AVRO","schema":'
            '"[\\"string\\",\\"int\\"]","deleted":false,"offset":3,"ts":17}',
        ),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        ("damaged", "damaged"),
        ('{"keytype":"UNHEARD","magic":0}', "{}"),
        (
            '{"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}',
            '{"subject":"gone-value","version":1,"id":11,"schema":"\\"long\\"","deleted":false}',
        ),
        (
            '{"keytype":"DELETE_SUBJECT","subject":"gone-value","magic":0}',
            '{"subject":"gone-value","version":1}',
        ),
    ]
    with Cluster(cluster.bootstrap_servers) as brokers:
        create_topic(brokers, settings.topic, 1, 3, {"cleanup.policy": "compact"})
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for key, value in rows:
            producer.send(settings.topic, value, key=key)
    with running_registry(settings) as url:
        client = Client(url)
        assert client.get("/subjects") == ["users-value"]
        assert client.get("/subjects", deleted="true") == ["gone-value", "users-value"]
        assert client.get("/schemas/ids/9") == {"schema": '["string","int"]'}
        assert client.get("/config") == {"compatibilityLevel": "FULL"}
        assert client.register("new-value", '"double"') == 12
        assert client.register("users-value", '"string"') == 7
        client.close()


def test_the_topic_is_made_compacted_on_three_brokers(cluster, clients, settings) -> None:
    with Cluster(cluster.bootstrap_servers) as brokers:
        topic = brokers.topic(settings.topic)
        assert [len(each.replicas) for each in topic.partitions.values()] == [3]
        policy = describe_topic_configs(brokers, settings.topic)["cleanup.policy"].value
        assert policy == "compact"


@pytest.mark.parametrize(
    ("partitions", "policy", "words"),
    [(1, "delete", "cleanup.policy=delete"), (2, "compact", "2 partitions")],
)
def test_a_topic_that_would_lose_schemas_is_refused(cluster, partitions, policy, words) -> None:
    settings = settings_for(cluster)
    with Cluster(cluster.bootstrap_servers) as brokers:
        create_topic(brokers, settings.topic, partitions, 3, {"cleanup.policy": policy})
    with pytest.raises(ConfigError, match=words), running_registry(settings):
        pass


def test_ids_go_on_after_a_restart_also_when_all_schemas_are_deleted(cluster) -> None:
    settings = settings_for(cluster)
    with running_registry(settings) as url:
        client = Client(url)
        assert [client.register("a", INT), client.register("b", LONG)] == [1, 2]
        for name in ("a", "b"):
            client.delete(f"/subjects/{name}")
            client.delete(f"/subjects/{name}", permanent="true")
        client.close()
    with running_registry(settings) as url:
        client = Client(url)
        assert client.get("/subjects", deleted="true") == []
        assert client.register("a", INT) == 3
        client.close()
