"""The ids by which rows of typed topics are sent to consumers of Avro.

The schema of a topic is a version of the subject `T-value`, which the registry makes by itself. The
broker looks for the very text, so that it never sends rows under a schema that means others.
"""

from collections import OrderedDict
from typing import NamedTuple

from storage_engine.broker.schemas.schemas_log import SchemasLog
from storage_engine.core.errors import ConfigError
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.registry.writer_schemas import id_under, kept_texts
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.net.client_log import ClientLog

KEPT_TOPICS = 1_000
"""The topics whose texts and ids are remembered; those of others are made anew each time."""

log = ClientLog(__name__)


class _Known(NamedTuple):
    schema: TopicSchema
    texts: frozenset[str]
    """The forms in which a registry may keep the schema."""
    seen: tuple[int, int]
    """The generation and the changes of the state that was looked at."""
    schema_id: int | None


def subject_of(topic: str) -> str:
    return f"{topic}-value"


class TopicSchemaIds:
    """On the event loop alone."""

    def __init__(self, schemas: SchemasLog) -> None:
        self._schemas = schemas
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def current(self, topic: str, schema: TopicSchema) -> int | None:
        """The id of the latest version; None: it is not registered, or not known here yet."""
        schemas = self._schemas
        schemas.use()
        seen = schemas.generation, schemas.changes
        known = self._known.get(topic)
        if known is not None and known.seen == seen and known.schema is schema:
            return known.schema_id
        texts = (
            known.texts if known is not None and known.schema is schema else _texts(topic, schema)
        )
        schema_id = id_under(schemas.state, subject_of(topic), texts) if schemas.is_loaded else None
        if schema_id is None:
            self._tell(topic, schema)
        self._known[topic] = _Known(schema, texts, seen, schema_id)
        self._known.move_to_end(topic)
        if len(self._known) > KEPT_TOPICS:
            self._known.popitem(last=False)
        return schema_id

    def _tell(self, topic: str, schema: TopicSchema) -> None:
        schemas = self._schemas
        if schemas.is_too_large:
            why = f"{schemas.topic} is larger than a broker keeps"
        elif not schemas.is_loaded:
            why = f"{schemas.topic} is not read yet: {schemas.problem}"
        else:
            why = f"the subject {subject_of(topic)} does not have it; is a registry running?"
        log.warning(
            topic,
            "consumers of Avro wait for the id of schema version %d of topic %s: %s",
            schema.latest.version,
            topic,
            why,
        )


def _texts(topic: str, schema: TopicSchema) -> frozenset[str]:
    try:
        return kept_texts(avro_text(schema, schema.latest, topic))
    except (ConfigError, InvalidSchemaError) as error:
        log.warning(topic, "topic %s has no schema of Avro: %s", topic, error)
        return frozenset()
