"""Subjects of a schema registry, as pages show them."""

import json
from typing import Any

import pytest

from headrace_console.paging import Page
from headrace_console.problem import ConsoleError
from headrace_console.screens import schemas
from headrace_console.screens.schemas import (
    subject_document,
    subject_list,
    topic_of,
    topic_subjects,
    version_document,
    version_list,
)
from storage_engine.client.schema_registry_http import RegistryAddress, RegistryHttp
from storage_engine.tests.client.registry.small_registry import small_registry

BACKWARD = {"value": "BACKWARD", "own": False}


@pytest.fixture
def registry():
    with small_registry() as running:
        running.rules = {
            "/config": {"compatibilityLevel": "BACKWARD"},
            "/mode": {"mode": "READWRITE"},
            "/config/a%2Fb-value": {"compatibilityLevel": "NONE"},
        }
        yield running


@pytest.fixture
def http(registry):
    client = RegistryHttp(RegistryAddress(urls=(registry.url,), patience_ms=500))
    yield client
    client.close()


def test_a_list_shows_the_page_that_is_asked_for_with_the_rules_in_force(registry, http):
    for name in ("c-key", "a/b-value", "other", "c-value"):
        registry.register(name, '"int"')
    registry.register("a/b-value", '"long"')
    found: Any = subject_list(http, Page(limit=2), 5, deleted=False)
    assert (found["total"], found["as_of_ms"], found["unanswered"]) == (4, 5, [])
    first, second = found["rows"]
    assert first == {
        **{"subject": "a/b-value", "topic": "a/b", "deleted": False, "type": "AVRO"},
        **{"versions": 2, "latest": 2, "id": 2, "level": {"value": "NONE", "own": True}},
        "mode": {"value": "READWRITE", "own": False},
    }
    assert (second["subject"], second["topic"], second["level"]) == ("c-key", "c", BACKWARD)
    asked = [path for _, path in registry.asked]
    assert not any("other" in path or "c-value" in path for path in asked), asked
    found = subject_list(http, Page(filter="VALUE", sort="-subject"), 5, deleted=False)
    assert [row["subject"] for row in found["rows"]] == ["c-value", "a/b-value"]


def test_a_registry_that_is_slow_leaves_rows_unknown_and_says_so(registry, http, monkeypatch):
    monkeypatch.setattr(schemas, "ROWS_S", -1.0)
    registry.register("a", '"int"')
    found: Any = subject_list(http, Page(), 5, deleted=False)
    (row,) = found["rows"]
    assert (row["subject"], row["latest"], row["level"]["value"]) == ("a", None, None)
    assert "is slow: 1 of these rows lack" in found["unanswered"][0]["why"]


def test_a_subject_tells_its_topic_and_whether_that_is_there(registry, http):
    for text in ('"int"', '"long"'):
        registry.register("c-key", text)
    registry.register("plain", '"int"')
    found: Any = subject_document(http, "c-key", {"c"}, 5)
    assert (found["topic"], found["topic_is_there"], found["part"]) == ("c", True, "key")
    assert (found["numbers"], found["latest"], found["deleted"]) == ([2, 1], 2, False)
    assert not subject_document(http, "c-key", (), 5)["topic_is_there"]
    assert subject_document(http, "plain", {"c"}, 5)["topic"] is None
    with pytest.raises(ConsoleError, match="no subject 'none' that you may see"):
        subject_document(http, "none", (), 5)


def test_versions_are_listed_newest_first_and_one_is_told_whole(registry, http):
    registry.register("base", '"int"')
    references = [{"name": "B", "subject": "base", "version": 1}]
    text = json.dumps({"type": "record", "name": "R", "fields": []})
    schema_id = registry.register("r-value", text, references=references)
    registry.register("copy", text, references=references)
    registry.register("r-value", '"long"')
    listed: Any = version_list(http, "r-value", Page(), 5)
    assert [(row["version"], row["id"], row["references"]) for row in listed["rows"]] == [
        (2, 3, 0),
        (1, schema_id, 1),
    ]
    found = version_document(http, "r-value", 1, 5)
    assert (found["text"], found["id"], found["type"]) == (text, schema_id, "AVRO")
    assert found["references"] == references
    assert found["others"] == [{"subject": "copy", "version": 1}]
    places = [{"subject": "r-value", "version": 1}, {"subject": "copy", "version": 1}]
    assert version_document(http, "base", 1, 5)["referenced_by"] == places


def test_a_topic_has_the_subjects_that_are_there(registry, http):
    registry.register("t-value", '"int"')
    found: Any = topic_subjects(http, "t", 5)
    (row,) = found["rows"]
    assert row == {"part": "value", "subject": "t-value", "version": 1, "id": 1, "type": "AVRO"}


@pytest.mark.parametrize(
    ("subject", "topic"), [("a-b-value", "a-b"), ("a-key", "a"), ("-key", None), ("a.R", None)]
)
def test_the_topic_of_a_subject_follows_from_its_name(subject, topic):
    assert topic_of(subject) == topic


def test_what_is_no_registry_is_said_to_be_none(registry, http):
    registry.rules |= {"/subjects": {"not": "a list"}}
    with pytest.raises(ConsoleError, match="no schema registry; correct --registry"):
        subject_list(http, Page(), 5, deleted=False)
