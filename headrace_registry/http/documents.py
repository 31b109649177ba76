"""Schemas as they are answered, in Confluent's JSON."""

from storage_engine.core.schemas.languages import SchemaType
from storage_engine.core.schemas.registry.records import Json, StoredSchema, reference_document


def schema_document(stored: StoredSchema) -> dict[str, Json]:
    """The schema that an id stands for."""
    schema = stored.schema
    document: dict[str, Json] = {}
    if schema.schema_type is not SchemaType.AVRO:
        document["schemaType"] = schema.schema_type.value
    document["schema"] = schema.text
    if schema.references:
        document["references"] = [reference_document(each) for each in schema.references]
    if stored.metadata:
        document["metadata"] = stored.metadata
    if stored.rule_set:
        document["ruleSet"] = stored.rule_set
    return document


def version_document(stored: StoredSchema, *, shows_deleted: bool = False) -> dict[str, Json]:
    """A version of a subject."""
    document: dict[str, Json] = {
        "subject": stored.subject,
        "version": stored.version,
        "id": stored.id,
        **schema_document(stored),
    }
    if shows_deleted and stored.is_deleted:
        document["deleted"] = True
    return document
