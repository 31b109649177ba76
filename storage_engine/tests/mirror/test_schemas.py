"""Which settings and which versions of a schema a mirror brings to its target."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from storage_engine.client.connection import NotServedError
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema
from storage_engine.mirror import schemas as mirror_schemas
from storage_engine.mirror.progress import Copy, TopicIds
from storage_engine.mirror.schemas import MirroredSchemas

FIRST = new_schema(parse_ddl("id BIGINT NOT NULL, name STRING"), ["id"])
SECOND = FIRST.evolved(parse_ddl("id BIGINT NOT NULL, name STRING, more INT"))
OTHER = FIRST.evolved(parse_ddl("id BIGINT NOT NULL, name STRING, other INT"))
COPY = Copy("east", TopicPartition("t", 0), TopicPartition("t", 0))
TARGET_ID = UUID(int=2)


class Clusters:
    """A source and a target, of which only schemas are asked for."""

    def __init__(self, monkeypatch, *, serves_schemas: bool = True) -> None:
        self.schemas: dict[str, TopicSchema | None] = {"source": FIRST, "target": None}
        self.altered: list[str] = []
        self.told: list[str] = []
        self._serves = serves_schemas
        monkeypatch.setattr(mirror_schemas, "TopicSchemas", self._known)
        monkeypatch.setattr(mirror_schemas, "alter_topic_configs", self._alter)
        source, target = self._cluster("source"), self._cluster("target")
        self.mirrored = MirroredSchemas(target, {"east": source}, self.told.append)

    def refresh(self, target_id: str = "b") -> Any:
        self.mirrored.refresh({COPY: TopicIds("a", target_id)})
        return self.mirrored.target_of(COPY)

    def _cluster(self, name: str) -> Any:
        def version_for(_spec: Any) -> int:
            if not self._serves:
                raise NotServedError("not at all")
            return 0

        return SimpleNamespace(
            name=name,
            deadline_ms=200,
            view=SimpleNamespace(brokers={1: None}),
            take=lambda _broker, _deadline: SimpleNamespace(version_for=version_for),
            give_back=lambda _connection: None,
        )

    def _known(self, cluster: Any) -> Any:
        def refresh(_topic: str) -> KnownSchema | None:
            schema = self.schemas[cluster.name]
            return None if schema is None else KnownSchema(TARGET_ID, schema)

        return SimpleNamespace(refresh=refresh)

    def _alter(self, _cluster: Any, topic: str, values: dict[str, str]) -> None:
        self.altered.append(topic)
        self.schemas["target"] = TopicSchema.from_json(values[SCHEMA_SETTING])


def test_a_cluster_without_schemas_gets_none(monkeypatch):
    settings = {SCHEMA_SETTING: FIRST.to_json(), "retention.ms": "5"}
    clusters = Clusters(monkeypatch, serves_schemas=False)
    assert clusters.mirrored.settings_for_target("t", settings) == {"retention.ms": "5"}
    assert clusters.told == [
        "topic 't': brokers of the target know no schemas, rows become JSON records"
    ]
    assert Clusters(monkeypatch).mirrored.settings_for_target("t", settings) == settings
    settings["headrace.foreign.format"] = "avro"
    assert clusters.mirrored.settings_for_target("t", settings) == {"retention.ms": "5"}
    assert clusters.told[1:] == [
        "topic 't': brokers of the target know no schemas, rows become Avro records"
    ]


def test_records_are_copied_as_records(monkeypatch):
    clusters = Clusters(monkeypatch)
    assert clusters.refresh() is None
    clusters.schemas = {"source": None, "target": FIRST}
    assert clusters.refresh("another") is None


def test_versions_that_the_target_lacks_are_added(monkeypatch):
    clusters = Clusters(monkeypatch)
    clusters.schemas = {"source": SECOND, "target": FIRST}
    assert clusters.refresh() == (TARGET_ID, SECOND)
    assert (clusters.altered, clusters.schemas["target"]) == (["t"], SECOND)
    # It does not ask again for topics that it knows.
    clusters.schemas["target"] = FIRST
    assert clusters.refresh() == (TARGET_ID, SECOND)
    assert clusters.altered == ["t"]


def test_a_target_that_is_ahead_is_left_as_it_is_until_it_differs(monkeypatch):
    clusters = Clusters(monkeypatch)
    clusters.schemas["target"] = OTHER
    # Batches of a second version of the source are none of the target's second version.
    assert clusters.refresh() == (TARGET_ID, FIRST)
    clusters.schemas["source"] = SECOND
    for bring in (lambda: clusters.mirrored.bring_later(COPY), lambda: clusters.refresh("another")):
        with pytest.raises(ConfigError, match="'t' of the target has another schema than 't' of"):
            bring()
    assert clusters.altered == []


def test_a_later_version_is_waited_for(monkeypatch):
    clusters = Clusters(monkeypatch)
    clusters.schemas["target"] = FIRST
    clusters.refresh()
    with pytest.raises(Exception, match="has a batch of a version of its schema that no broker"):
        clusters.mirrored.bring_later(COPY)
    clusters.schemas["source"] = SECOND
    clusters.mirrored.bring_later(COPY)
    assert clusters.mirrored.target_of(COPY) == (TARGET_ID, SECOND)
    assert clusters.schemas["target"] == SECOND
