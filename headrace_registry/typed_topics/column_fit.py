"""Whether the columns of a typed topic can take what a schema under the topic's subject writes."""

from collections.abc import Mapping

from headrace_registry.typed_topics.subject_names import topic_of
from storage_engine.core.schemas.avro.parsed import ParsedAvro
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.languages import ParsedSchema
from storage_engine.core.typed.topic_schema import TopicSchema


def column_misfit(
    typed: Mapping[str, TopicSchema], subject: str, parsed: ParsedSchema
) -> str | None:
    """Why a broker would refuse all records of the schema; None: it would not, or the subject is
    not that of one of the typed topics."""
    topic = topic_of(subject)
    schema = None if topic is None else typed.get(topic)
    if schema is None:
        return None
    if not isinstance(parsed, ParsedAvro):
        return f"topic '{topic}' is typed, and its subject takes schemas of type AVRO alone"
    # The import is here: it loads Arrow, which a registry without typed topics saves.
    from storage_engine.protocol.typed.arrays.avro_parser import AvroParser

    try:
        AvroParser(parsed.tree, schema.latest.visible, schema.key)
    except InvalidSchemaError as error:
        return f"the columns of topic '{topic}' can't take its records: {error}"
    return None
