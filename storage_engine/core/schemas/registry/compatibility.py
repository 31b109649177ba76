"""Whether a new schema is compatible with the versions before it, as a level wants."""

from collections.abc import Callable, Sequence

from storage_engine.core.schemas.languages import ParsedSchema, Schema, incompatibilities
from storage_engine.core.schemas.registry.records import Json, Level, StoredSchema

Parse = Callable[[Schema], ParsedSchema]
"""Parses a schema that is stored, with what it refers to."""

_BACKWARD = {Level.BACKWARD, Level.BACKWARD_TRANSITIVE, Level.FULL, Level.FULL_TRANSITIVE}
_FORWARD = {Level.FORWARD, Level.FORWARD_TRANSITIVE, Level.FULL, Level.FULL_TRANSITIVE}
_TRANSITIVE = {Level.BACKWARD_TRANSITIVE, Level.FORWARD_TRANSITIVE, Level.FULL_TRANSITIVE}


def compared_with(
    level: Level, versions: Sequence[StoredSchema], group: str | None, metadata: Json
) -> Sequence[StoredSchema]:
    """The versions, newest first, that a new schema with this metadata is compared with. `group`:
    the property of metadata in which they agree with it."""
    if level is Level.NONE:
        return ()
    wanted = _property(metadata, group)
    same = [each for each in versions if _property(each.metadata, group) == wanted]
    return same[::-1] if level in _TRANSITIVE else same[-1:]


def _property(metadata: Json, name: str | None) -> Json:
    if name is None or not isinstance(metadata, dict):
        return None
    properties = metadata.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def reasons_against(
    level: Level,
    new: Schema,
    parsed: ParsedSchema,
    versions: Sequence[StoredSchema],
    parse: Parse,
) -> list[str]:
    """Why the schema is not compatible with the first of `versions` that it is not compatible with;
    [] where it is with all."""
    for old in versions:
        if old.schema.schema_type is not new.schema_type:
            found = [
                "Incompatible because of different schema type: "
                f"{new.schema_type.value} after {old.schema.schema_type.value}"
            ]
        else:
            known = parse(old.schema)
            found = incompatibilities(parsed, known) if level in _BACKWARD else []
            if level in _FORWARD:
                found += incompatibilities(known, parsed, reader_is="old", writer_is="new")
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {old.version}}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []
