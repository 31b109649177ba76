"""Brings the schemas that a schema refers to, directly and through others, into order."""

from collections.abc import Mapping

from storage_engine.core.printable import printable
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import MAX_SCHEMA_BYTES
from storage_engine.core.schemas.texts import Reference, Schema

MAX_REFERENCES = 1000
"""The most schemas that one may refer to, also through others. Their texts together may have the
length of the longest text times four."""


def in_order(schema: Schema, resolved: Mapping[str, Schema]) -> list[tuple[str, Schema]]:
    """Return the schemas by the names of the references, each behind those that it refers to.
    InvalidSchemaError for one that is not in `resolved`, of another language, or refers to itself.
    """
    found: dict[str, Schema] = {}
    ended: set[str] = set()
    waiting = [iter(schema.references)]
    names: list[str] = []
    while waiting:
        reference = next(waiting[-1], None)
        if reference is None:
            waiting.pop()
            if names:
                ended.add(name := names.pop())
                found[name] = resolved[name]
        elif reference.name not in ended:
            inner = _resolve(reference, schema, resolved)
            if reference.name in names:
                raise InvalidSchemaError(f"the reference {_shown(reference)} refers to itself")
            if len(names) + len(found) >= MAX_REFERENCES:
                raise InvalidSchemaError(f"the schema has more than {MAX_REFERENCES:,} references")
            names.append(reference.name)
            waiting.append(iter(inner.references))
    if sum(len(each.text) for each in found.values()) > 4 * MAX_SCHEMA_BYTES:
        raise InvalidSchemaError("the schema refers to schemas that are too long together")
    return [*found.items()]


def _resolve(reference: Reference, schema: Schema, resolved: Mapping[str, Schema]) -> Schema:
    inner = resolved.get(reference.name)
    if inner is None:
        raise InvalidSchemaError(f"the reference {_shown(reference)} leads nowhere")
    if inner.schema_type is not schema.schema_type:
        raise InvalidSchemaError(
            f"the reference {_shown(reference)} leads to a schema of type "
            f"{inner.schema_type.value}, not {schema.schema_type.value}"
        )
    return inner


def _shown(reference: Reference) -> str:
    name, subject = printable(reference.name[:80]), printable(reference.subject[:80])
    return f"'{name}' (subject '{subject}', version {reference.version})"
