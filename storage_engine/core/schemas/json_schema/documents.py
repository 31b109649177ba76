"""The documents of a JSON Schema: its own text, those that it refers to, and the known metaschemas.
Nothing else is ever fetched.

Needs the extra `registry`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from jsonschema import SchemaError
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import Schema as Document
from referencing.jsonschema import SchemaRegistry, SchemaResource, specification_with

from storage_engine.core.printable import printable
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import JsonValue, read_json, shown
from storage_engine.core.schemas.references import in_order
from storage_engine.core.schemas.texts import Schema

if TYPE_CHECKING:
    from referencing._core import Resolver

DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DRAFTS = (
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    DRAFT_7,
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
_MODERN = _DRAFTS[3:]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A schema within a document: what stands there, and from where its references lead."""

    value: JsonValue
    resolver: "Resolver[Document]"
    modern: bool
    """The draft is one in which what stands beside `$ref` counts: 2019-09 or later."""

    def inside(self, value: JsonValue) -> "Part":
        """Return a schema that stands inside of this one."""
        return Part(value, _base(value, self.resolver, self.modern), self.modern)


def read_schema(schema: Schema, resolved: Mapping[str, Schema], *, new: bool) -> Part:
    """Return the outermost schema. A new one is held against its metaschema."""
    value = read_json(schema.text, "the JSON Schema")
    draft = _draft(value, new=new)
    if new:
        _check(value, draft)
    return _open(value, draft, _others(schema, value, resolved))


def _draft(value: JsonValue, *, new: bool) -> str:
    if not isinstance(value, dict | bool):
        raise InvalidSchemaError(
            f"a JSON Schema must be an object or a boolean, not {shown(value)}"
        )
    named = value.get("$schema", DRAFT_7) if isinstance(value, dict) else DRAFT_7
    draft = named.removesuffix("#") if isinstance(named, str) else ""
    draft = draft.replace("https://json-schema.org/draft-", "http://json-schema.org/draft-")
    if draft in _DRAFTS:
        return draft
    if new:
        raise InvalidSchemaError(
            f"the JSON Schema's '$schema' is {shown(named)}, which is not known: use "
            f"'{DRAFT_7}#' or '{_DRAFTS[-1]}'"
        )
    return DRAFT_7


def _check(value: JsonValue, draft: str) -> None:
    if not isinstance(value, dict):
        return
    try:
        validator_for({"$schema": draft}).check_schema(value)
    except SchemaError as error:
        where, what = printable(error.json_path[:200]), printable(error.message[:200])
        raise InvalidSchemaError(f"the JSON Schema is not valid at {where}: {what}") from None
    except RecursionError:
        raise InvalidSchemaError("the JSON Schema is nested too deep") from None


def _others(
    schema: Schema, root: JsonValue, resolved: Mapping[str, Schema]
) -> dict[str, JsonValue]:
    """Return the documents by all names by which a reference may ask for them."""
    ordered = in_order(schema, resolved)
    values = {name: read_json(each.text, f"'{printable(name[:80])}'") for name, each in ordered}
    found: dict[str, JsonValue] = {**values}
    for name, each in (*ordered, ("", schema)):
        base = _id(root if each is schema else values[name]) or name
        for reference in each.references:
            found.setdefault(_joined(base, reference.name), values[reference.name])
    return found


def _id(value: JsonValue) -> str | None:
    name = value.get("$id", value.get("id")) if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:
        raise InvalidSchemaError(
            f"'{printable(name[:80])}' is no address that can be referred to"
        ) from None


def _open(value: JsonValue, draft: str, others: Mapping[str, JsonValue]) -> Part:
    documents = [(name, _resource(each)) for name, each in others.items()]
    named = [(own, each) for _, each in documents if (own := each.id()) is not None]
    root = _resource(value)
    try:
        registry: SchemaRegistry = REGISTRY.with_resources([*documents, *named])
        registry = registry.with_resource(root.id() or "", root).crawl()
        return Part(value, registry.resolver(root.id() or ""), draft in _MODERN)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise InvalidSchemaError(
            f"the JSON Schema can't be read: {printable(str(error)[:200])}"
        ) from None


def _resource(document: JsonValue) -> SchemaResource:
    draft = _draft(document, new=False)
    content = document if isinstance(document, dict | bool) else {}
    return specification_with(draft).create_resource(content)


def look_up(part: Part, reference: JsonValue) -> Part:
    """Return what a `$ref` leads to; InvalidSchemaError where that is nothing."""
    if not isinstance(reference, str):
        raise InvalidSchemaError(f"a '$ref' must be a string, and is {shown(reference)}")
    try:
        found = part.resolver.lookup(reference)
    except (Unresolvable, NoSuchResource, ValueError, AttributeError, TypeError, KeyError):
        raise InvalidSchemaError(
            f"the reference '{printable(reference[:200])}' leads nowhere: remote schemas are not "
            "fetched, register them as references"
        ) from None
    if not isinstance(found.contents, dict | bool):
        raise InvalidSchemaError(f"the reference '{printable(reference[:200])}' leads to no schema")
    return Part(found.contents, found.resolver, part.modern)


def _base(value: JsonValue, resolver: "Resolver[Document]", modern: bool) -> "Resolver[Document]":
    if not isinstance(value, dict) or ("$id" not in value and "id" not in value):
        return resolver
    draft = _DRAFTS[-1] if modern else DRAFT_7
    try:
        return resolver.in_subresource(specification_with(draft).create_resource(value))
    except (ValueError, AttributeError, TypeError):
        return resolver
