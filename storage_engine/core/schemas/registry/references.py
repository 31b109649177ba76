"""The schemas that one refers to, at first and second hand, found in the state of a registry."""

from storage_engine.core.schemas.languages import Reference, Schema
from storage_engine.core.schemas.registry.registry_error import invalid_schema
from storage_engine.core.schemas.registry.state import RegistryState

MOST_REFERENCES = 1_000
MOST_BYTES = 20 << 20
"""All schemas that a schema refers to are parsed with it."""
LATEST = -1


def pinned(schema: Schema, state: RegistryState) -> Schema:
    """The schema with version numbers in place of the latest versions. RegistryError for a
    reference to a subject that is not there."""
    if all(each.version != LATEST for each in schema.references):
        return schema
    found = []
    for reference in schema.references:
        latest = state.latest(reference.subject)
        if latest is None:
            raise _missing(reference)
        number = latest.version if reference.version == LATEST else reference.version
        found.append(Reference(reference.name, reference.subject, number))
    return Schema(schema.schema_type, schema.text, tuple(found))


def resolved(schema: Schema, state: RegistryState) -> dict[str, Schema]:
    """All schemas that it refers to, by the names in references. RegistryError for a reference that
    is not there, and for too many."""
    found: dict[str, Schema] = {}
    size = 0
    waiting = list(schema.references)
    while waiting:
        reference = waiting.pop()
        stored = state.version(reference.subject, reference.version)
        if stored is None:
            raise _missing(reference)
        known = found.get(reference.name)
        if known is not None:
            if known != stored.schema:
                raise invalid_schema(
                    f"two schemas that it refers to have the name '{reference.name}'"
                )
            continue
        found[reference.name] = stored.schema
        size += len(stored.schema.text)
        if len(found) > MOST_REFERENCES or size > MOST_BYTES:
            raise invalid_schema(
                f"it refers to more than {MOST_REFERENCES} schemas, or {MOST_BYTES >> 20} MiB"
            )
        waiting += stored.schema.references
    return found


def _missing(reference: Reference) -> Exception:
    which = "" if reference.version == LATEST else f" version {reference.version}"
    return invalid_schema(
        f"its reference '{reference.name}' is to subject '{reference.subject}'{which}, which is "
        "not there"
    )
