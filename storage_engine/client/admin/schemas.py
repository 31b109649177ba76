"""Topics with a schema: creates them, appends versions, shows them.

A schema is given as text: Spark's DDL, an Avro record, a JSON Schema or Spark's JSON. A version is
appended only to the schema from which it was made: the brokers refuse another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage_engine.client.admin.requests import wait_until
from storage_engine.client.admin.topics import (
    NewTopic,
    alter_topic_configs,
    create_topics,
    names_in,
)
from storage_engine.client.cluster import Cluster
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import ConfigError, DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.typed.schema_text import parse_schema
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, TopicSchema, new_schema

NEWS_MS = 2_000
"""How long after a refusal a leader may still not know the version that was in the way."""


def schema_from(schema: str | TopicSchema, key: Sequence[str] = ()) -> TopicSchema:
    """Return the schema of a new topic; ConfigError for a text that is none. `key` names columns,
    and belongs to a text only."""
    if isinstance(key, str):
        raise ConfigError(f"the key is a list of column names; give ['{key}']")
    if not isinstance(schema, TopicSchema):
        return new_schema(parse_schema(schema), key)
    if key:
        raise ConfigError("the key is given twice: this schema has its own")
    return schema


def create_typed_topics(
    cluster: Cluster,
    topics: Iterable[NewTopic],
    schema: TopicSchema,
    *,
    validate_only: bool = False,
) -> None:
    """Create topics of one schema; returns when every partition has a leader that serves it."""
    wanted = []
    for topic in topics:
        if SCHEMA_SETTING in topic.configs:
            raise ConfigError(f"the schema of topic '{topic.name}' is given twice: leave one out")
        configs = {**topic.configs, SCHEMA_SETTING: schema.to_json()}
        wanted.append(replace(topic, configs=configs))
    try:
        create_topics(cluster, wanted, validate_only=validate_only)
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_CONFIG and f"setting '{SCHEMA_SETTING}'" in str(error):
            raise KafkaError(
                "only Headrace's brokers have typed topics",
                ErrorCode.UNSUPPORTED_VERSION,
            ) from error
        raise


def describe_schemas(cluster: Cluster, topics: Iterable[str]) -> dict[str, KnownSchema | None]:
    """The schema of each topic; None for one that is not typed."""
    schemas = TopicSchemas(cluster)
    return {topic: schemas.get(topic) for topic in names_in(topics)}


def alter_schema(
    cluster: Cluster, topic: str, schema: str, *, based_on: int | None = None
) -> TopicSchema:
    """Give a typed topic the columns of `schema`, by name: new ones are added, types may be wider,
    those that are left out are hidden; rows that are there stay readable. `based_on`: the version
    from which you made them; where there is a newer one, it is an error. Returns the topic's schema
    when the leaders of all partitions work by it; it has no new version where nothing changes.
    ConfigError says why a change is refused; KafkaError when somebody else changes the schema at
    the same time."""
    columns = parse_schema(schema)
    schemas = TopicSchemas(cluster)
    known = schemas.refresh(topic)
    if known is None:
        raise KafkaError(
            f"topic '{topic}' is not typed, and can't become so: create another one",
            ErrorCode.INVALID_CONFIG,
        )
    if based_on is not None and known.schema.latest.version != based_on:
        raise _overtaken(topic)
    evolved = known.schema.evolved(columns)
    if evolved is known.schema:
        return evolved
    try:
        alter_topic_configs(cluster, topic, {SCHEMA_SETTING: evolved.to_json()})
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_CONFIG and _is_changed(cluster, schemas, topic, known):
            raise _overtaken(topic) from error
        raise
    wait_until(
        cluster,
        lambda: _all_know(cluster, schemas, topic, evolved),
        f"the schema of topic '{topic}' is changed, but not all leaders know it",
    )
    return evolved


def _overtaken(topic: str) -> KafkaError:
    # Not tried again: the columns that the other one has added are not among ours, and would be
    # hidden.
    return KafkaError(
        f"somebody else has changed the schema of topic '{topic}' meanwhile: look at it, and alter "
        "it again",
        ErrorCode.INVALID_CONFIG,
    )


def _is_changed(cluster: Cluster, schemas: TopicSchemas, topic: str, before: KnownSchema) -> bool:
    """Return whether somebody else has appended a version meanwhile."""
    try:
        wait_until(cluster, lambda: schemas.refresh(topic) != before, "", deadline_ms=NEWS_MS)
    except DeadlineExceededError:
        return False
    return True


def _all_know(cluster: Cluster, schemas: TopicSchemas, topic: str, wanted: TopicSchema) -> bool:
    cluster.refresh([topic])
    try:
        found = [schemas.ask_broker(broker_id, topic) for broker_id in schemas.leaders(topic)]
    except (DeadlineExceededError, KafkaError):
        return False
    return bool(found) and all(
        known is not None and len(known.schema.versions) >= len(wanted.versions) for known in found
    )
