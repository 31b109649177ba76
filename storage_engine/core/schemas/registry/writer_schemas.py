"""The Avro schemas that records are written in, by their ids, in the state of a registry."""

from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.core.schemas.avro.parsed import parse_avro_text
from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.registry.references import resolved
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.core.schemas.texts import Schema, SchemaType


class WriterText(NamedTuple):
    """A schema that is not parsed yet, with those that it refers to by the names in references."""

    schema: Schema
    known: Mapping[str, Schema]

    @property
    def characters(self) -> int:
        return len(self.schema.text) + sum(len(each.text) for each in self.known.values())

    def parsed(self) -> AvroSchema:
        """InvalidSchemaError for a text that is no schema. Runs on any thread."""
        return parse_avro_text(self.schema, self.known, new=False).tree


def writer_text(state: RegistryState, schema_id: int) -> WriterText | None:
    """The schema with an id, also where its versions are soft deleted; None: nobody gave the id, or
    its schema was deleted for good. InvalidSchemaError for one in which no record can be read."""
    found = state.with_id(schema_id)
    if not found:
        return None
    schema = found[0].schema
    if schema.schema_type is not SchemaType.AVRO:
        raise InvalidSchemaError(f"it is of type {schema.schema_type.value}, not AVRO")
    try:
        return WriterText(schema, resolved(schema, state))
    except RegistryError:
        raise InvalidSchemaError("it refers to schemas that are not there") from None


def kept_texts(text: str) -> frozenset[str]:
    """The forms in which a registry may keep an Avro schema without references. InvalidSchemaError
    for a text that is none."""
    parsed = parse_avro_text(Schema(SchemaType.AVRO, text), {}, new=False)
    return frozenset((parsed.canonical, parsed.normalized))


def id_under(state: RegistryState, subject: str, texts: frozenset[str]) -> int | None:
    """The id of the newest version of a subject that is an Avro schema with one of these texts and
    without references. Soft deleted ones count: their ids are read everywhere."""
    for stored in reversed(state.versions(subject, with_deleted=True)):
        schema = stored.schema
        is_alone = schema.schema_type is SchemaType.AVRO and not schema.references
        if is_alone and schema.text in texts:
            return stored.id
    return None
