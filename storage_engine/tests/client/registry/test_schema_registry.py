"""The client of a schema registry, against one over HTTP."""

import json
import logging
import socket
import time

import pytest
import trustme

from storage_engine.client import schema_registry
from storage_engine.client.schema_registry import SchemaRegistry, UnknownSchemaIdError
from storage_engine.client.schema_registry_http import (
    MAX_ANSWER_BYTES,
    RegistryAddress,
    SchemaRegistryError,
    parse_registry_urls,
    quoted_path,
)
from storage_engine.client.security.client_security import ClientTls
from storage_engine.core.errors import ConfigError, DeadlineExceededError
from storage_engine.core.schemas.languages import Reference, Schema, SchemaType
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tests.client.registry.small_registry import server_context, small_registry

TEXT = '{"type": "record", "name": "R", "fields": []}'
AVRO = Schema(schema_type=SchemaType.AVRO, text=TEXT)


def _client(*registries, **settings):
    urls = tuple(getattr(each, "url", each) for each in registries)
    settings = {"request_timeout_ms": 2_000, "patience_ms": 10_000} | settings
    return SchemaRegistry(RegistryAddress(urls=urls, **settings))


def _closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_a_schema_is_fetched_once():
    with small_registry() as registry:
        schema_id = registry.register("t-value", TEXT)
        client = _client(registry)
        assert client.by_id(schema_id) == client.by_id(schema_id) == AVRO
        assert len(registry.asked) == 1


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(schema_registry, "MAX_KEPT_BYTES", 3_000)
    with small_registry() as registry:
        ids = [registry.register("t-value", json.dumps(f"n{number}")) for number in range(4)]
        client = _client(registry)
        for schema_id in ids * 2:
            client.by_id(schema_id)
        assert len(registry.asked) == 8


def test_an_id_that_nobody_gave_is_asked_for_again_only_later(monkeypatch):
    monkeypatch.setattr(schema_registry, "LAG_S", 0.0)
    with small_registry() as registry:
        client = _client(registry)
        for _ in range(3):
            with pytest.raises(UnknownSchemaIdError, match="no schema of id 77"):
                client.by_id(77)
        assert len(registry.asked) == 1


def test_of_many_ids_those_that_are_in_no_list_of_schemas_are_not_asked_for():
    with small_registry(first_id=5_000) as registry:
        known = [registry.register("t-value", json.dumps(f"n{number}")) for number in range(3)]
        client = _client(registry)
        few = range(schema_registry.MAX_ASKED_IDS)
        assert client.unknown_among(few) == frozenset()
        assert registry.asked == []
        fresh = range(known[-1] + 1, known[-1] + 1 + schema_registry.NEW_IDS)
        beyond = [fresh[-1] + 1, (1 << 31) - 1]
        hostile = range(4_000)
        assert client.unknown_among([*hostile, *known, *fresh, *beyond]) == {*hostile, *beyond}
        assert registry.asked == [("GET", "/schemas?deleted=true")]
        assert str(client.unknown(77)).endswith("knows no schema of id 77")


def test_a_list_that_is_not_given_is_not_asked_for_at_once_again(monkeypatch):
    with small_registry() as registry:
        client = _client(registry)
        registry.failures = [404]
        for _ in range(2):
            assert client.unknown_among(range(1_000)) == frozenset()
        assert len(registry.asked) == 1
        monkeypatch.setattr(client, "_no_list_until", 0.0)
        assert client.unknown_among([*range(100), 5_000]) == {0, 5_000}


def test_the_unknown_ids_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(schema_registry, "LAG_S", 0.0)
    monkeypatch.setattr(schema_registry, "MAX_UNKNOWN_IDS", 2)
    with small_registry() as registry:
        client = _client(registry)
        for schema_id in (77, 78, 79, 79, 78, 77):
            with pytest.raises(UnknownSchemaIdError):
                client.by_id(schema_id)
        assert [path for _, path in registry.asked] == [
            f"/schemas/ids/{schema_id}" for schema_id in (77, 78, 79, 77)
        ]


def test_an_id_that_one_instance_does_not_know_yet_is_asked_of_the_others():
    with small_registry() as late, small_registry() as first:
        schema_id = first.register("t-value", TEXT)
        assert _client(late, first).by_id(schema_id) == AVRO


def test_an_id_that_comes_a_moment_later_is_found():
    with small_registry() as registry:
        registry.failures = [404, 404]
        schema_id = registry.register("t-value", TEXT)
        assert _client(registry).by_id(schema_id) == AVRO


def test_versions_and_subjects_with_any_characters():
    with small_registry() as registry:
        client = _client(registry)
        first = client.register("a/b ü?-value", AVRO)
        second = client.register("a/b ü?-value", Schema(schema_type=SchemaType.AVRO, text='"int"'))
        latest = client.latest("a/b ü?-value")
        assert (latest.version, latest.schema_id, latest.schema.text) == (2, second, '"int"')
        assert client.version("a/b ü?-value", 1).schema_id == first
        assert client.find("a/b ü?-value", AVRO).version == 1
        assert client.find("another", AVRO) is None
        with pytest.raises(SchemaRegistryError, match="40402"):
            client.version("a/b ü?-value", 3)
    assert quoted_path("a/b") == "/a%2Fb"


def test_a_schema_is_registered_once():
    with small_registry() as registry:
        client = _client(registry)
        assert client.register("t-value", AVRO) == client.register("t-value", AVRO)
        assert len(registry.asked) == 1
        client.register("t-key", AVRO)
        assert list(registry.subjects) == ["t-value", "t-key"]


def test_references_are_found_through_others():
    with small_registry() as registry:
        registry.register("money", '"int"')
        registry.register("item", TEXT, references=[_reference("Money", "money")])
        client = _client(registry)
        order = Schema(
            schema_type=SchemaType.AVRO,
            text=TEXT,
            references=(Reference(name="Item", subject="item", version=1),),
        )
        found = client.references_of(order)
        assert {name: each.text for name, each in found.items()} == {"Item": TEXT, "Money": '"int"'}
        client.register("order", order)
        assert client.latest("order").schema == order


def _reference(name, subject):
    return {"name": name, "subject": subject, "version": 1}


def test_a_name_that_stands_for_two_versions_is_refused():
    with small_registry() as registry:
        registry.register("money", '"int"')
        registry.register("money", '"long"')
        registry.register("item", TEXT, references=[{**_reference("Money", "money"), "version": 2}])
        both = Schema(
            schema_type=SchemaType.AVRO,
            text=TEXT,
            references=(Reference("Item", "item", 1), Reference("Money", "money", 1)),
        )
        with pytest.raises(SchemaRegistryError, match="in two versions"):
            _client(registry).references_of(both)


def test_the_next_instance_answers_for_one_that_is_away():
    with small_registry() as registry:
        registry.register("t-value", TEXT)
        assert _client(_closed_port(), registry).latest("t-value").version == 1


def test_a_registry_that_is_away_is_waited_for_with_one_line(caplog):
    with small_registry() as registry:
        registry.register("t-value", TEXT)
        registry.failures = [503, 500, 429]
        with caplog.at_level(logging.WARNING):
            assert _client(registry).latest("t-value").version == 1
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 2
    assert "does not answer" in lines[0]
    assert "HTTP 503, 503: as told" in lines[0]
    assert "answers again" in lines[1]


def test_a_registry_that_stays_away_is_one_error_within_the_bound():
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match=r"gave no answer for 0\.4 s") as raised:
        _client(_closed_port(), patience_ms=400).latest("t-value")
    assert time.monotonic() - started < 30
    assert "\n" not in str(raised.value)


def test_an_instance_that_answers_nothing_is_left_in_time():
    with small_registry() as registry, socket.create_server(("127.0.0.1", 0)) as silent:
        registry.register("t-value", TEXT)
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert _client(silent_url, registry, request_timeout_ms=300).latest("t-value").version == 1


def test_a_connection_that_was_closed_between_requests_is_opened_again():
    with small_registry() as registry:
        registry.register("t-value", TEXT)
        client = _client(registry)
        registry.failures = [_answer_and_close]
        for _ in range(3):
            assert client.latest("t-value").version == 1


def _answer_and_close(handler):
    data = json.dumps({"subject": "t-value", "version": 1, "id": 1, "schema": TEXT}).encode()
    handler.give(200, data)
    # Without a word to the client.
    handler.close_connection = True


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no right 'object'"),
        (b'{"subject": "t-value", "version": "x", "id": 1, "schema": "1"}', "no right 'version'"),
        (b'{"subject": 7, "version": 1, "id": 1, "schema": "1"}', "no right 'subject'"),
        (
            b'{"schema": "1", "schemaType": "THRIFT", "subject": "t", "version": 1, "id": 1}',
            "THRIFT",
        ),
        (b" " * (MAX_ANSWER_BYTES + 1), "more than 16 MiB"),
    ],
)
def test_what_is_no_registry_is_told(data, message):
    with small_registry() as registry:
        registry.failures = [lambda handler: handler.give(200, data)]
        with pytest.raises(SchemaRegistryError, match=message) as raised:
            _client(registry).latest("t-value")
        assert "\n" not in str(raised.value)


def test_a_redirect_is_not_followed():
    with small_registry() as registry:
        registry.failures = [302]
        with pytest.raises(SchemaRegistryError, match="HTTP 302"):
            _client(registry).latest("t-value")
        assert len(registry.asked) == 1


def test_a_refusal_has_the_registrys_words():
    with small_registry() as registry:
        registry.failures = [409]
        with pytest.raises(SchemaRegistryError, match="HTTP 409, 409: as told") as raised:
            _client(registry).register("t-value", AVRO)
        assert (raised.value.status, raised.value.code) == (409, 409)


def test_basic_auth():
    with small_registry(user_info="app:s3:cret") as registry:
        registry.register("t-value", TEXT)
        assert _client(registry, user_info=Secret("app:s3:cret")).latest("t-value").version == 1
        with pytest.raises(SchemaRegistryError, match=r"refuses the user \(HTTP 401") as raised:
            _client(registry, user_info=Secret("app:wrong")).latest("t-value")
        assert "wrong" not in str(raised.value)


def test_tls(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = server_context(tmp_path / "server.pem", None)
    with small_registry(context=context) as registry:
        registry.register("t-value", TEXT)
        tls = ClientTls(ca_location=str(tmp_path / "ca.pem"))
        assert _client(registry, tls=tls).latest("t-value").version == 1
        started = time.monotonic()
        with pytest.raises(SchemaRegistryError, match="certificate is not trusted"):
            _client(registry, patience_ms=60_000).latest("t-value")
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("text", "urls", "user_info"),
    [
        ("http://a:8081", ("http://a:8081",), None),
        (" https://a/sr/ ,http://[::1]:80", ("https://a/sr", "http://[::1]:80"), None),
        ("http://u:p%40ss@a,http://u:p%40ss@b", ("http://a", "http://b"), "u:p@ss"),
    ],
)
def test_urls(text, urls, user_info):
    found, secret = parse_registry_urls(text)
    assert found == urls
    assert (None if secret is None else secret.reveal()) == user_info


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:8081",
        "ftp://a",
        "http://",
        "http://a:port",
        "http://a?x=1",
        "http://u:1@a,http://u:2@b",
    ],
)
def test_what_is_no_url_is_told_without_a_password(text):
    with pytest.raises(ConfigError) as raised:
        parse_registry_urls(text)
    assert "u:1" not in str(raised.value)


def test_a_path_in_front_is_kept():
    with small_registry() as registry:
        with pytest.raises(SchemaRegistryError):
            _client(f"{registry.url}/sr").latest("t-value")
        assert registry.asked[0][1] == "/sr/subjects/t-value/versions/latest"
