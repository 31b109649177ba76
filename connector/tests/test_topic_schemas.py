"""A process remembers the schemas of topics for a while."""

import time
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

import pytest

from connector import topic_schemas
from connector.options.source_options import parse_source_options
from connector.topic_schemas import known_schema_or_older, known_schemas
from storage_engine.client import topic_schemas as of_the_client
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import DeadlineExceededError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

TYPED = KnownSchema(UUID(int=1), new_schema(parse_ddl("id BIGINT"), []))


@pytest.fixture
def brokers(monkeypatch):
    """Brokers that know some topics, and note the topics that they were asked for."""

    class Brokers:
        known: ClassVar[dict[str, KnownSchema | None]]
        asked: ClassVar[list[str]]

        def __init__(self, cluster=None):
            pass

        def get(self, topic):
            self.asked.append(topic)
            if topic not in self.known:
                raise DeadlineExceededError("nobody answers")
            return self.known[topic]

    Brokers.known, Brokers.asked = {"t": TYPED, "u": None}, []
    monkeypatch.setattr(of_the_client, "TopicSchemas", Brokers)
    monkeypatch.setattr(topic_schemas, "cluster_for", lambda options: None)
    monkeypatch.setattr(topic_schemas, "_remembered", {})
    return Brokers


def _connection(**options):
    return parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"} | options).connection


def test_a_topic_is_asked_for_once_with_or_without_a_schema(brokers):
    for _ in range(2):
        assert known_schemas(_connection(), ["t", "u"]) == {"t": TYPED, "u": None}
    assert brokers.asked == ["t", "u"]
    known_schemas(_connection(), ["t"], refresh=True)
    known_schemas(replace(_connection(), bootstrap_servers="h:2"), ["t"])
    assert brokers.asked == ["t", "u", "t", "t"]


def test_what_is_old_is_asked_for_again(brokers, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    connection = _connection(**{"metadata.max.age.ms": "5000"})
    known_schemas(connection, ["t"])
    now[0] += 4.9
    known_schemas(connection, ["t"])
    now[0] += 0.2
    known_schemas(connection, ["t"])
    assert brokers.asked == ["t", "t"]


def test_a_writer_goes_on_with_what_it_knows_while_no_broker_answers(brokers, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with pytest.raises(DeadlineExceededError):
        known_schema_or_older(_connection(), "new")
    known_schema_or_older(_connection(), "t")
    brokers.known.clear()
    now[0] += 3600
    assert known_schema_or_older(_connection(), "t") == TYPED


def test_a_process_remembers_no_more_than_some_topics(brokers, monkeypatch):
    monkeypatch.setattr(topic_schemas, "MOST_REMEMBERED", 2)
    brokers.known |= {"v": None}
    known_schemas(_connection(), ["t", "u", "v"])
    assert len(topic_schemas._remembered) <= 2
