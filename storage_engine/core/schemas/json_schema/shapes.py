"""The demands of a JSON Schema, sorted by the type of value: each schema is one shape.

A schema that demands several things at once, such as a type and an enum, is all of its parts; one
with several types is any of them. Keywords of no vocabulary are annotations, and not kept.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_schema.documents import Part, look_up
from storage_engine.core.schemas.json_text import (
    JsonObject,
    JsonValue,
    compact_json,
    sorted_json,
)

KEYWORDS_OF_TYPE: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": (
        "properties", "required", "additionalProperties", "unevaluatedProperties",
        "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies",
        "dependentRequired", "dependentSchemas",
    ),
    "array": (
        "items", "additionalItems", "prefixItems", "unevaluatedItems", "contains", "minContains",
        "maxContains", "minItems", "maxItems", "uniqueItems",
    ),
}  # fmt: skip
"""The keywords that say something about values of one type, and nothing about others."""
_LATER = (
    "prefixItems", "unevaluatedItems", "minContains", "maxContains", "unevaluatedProperties",
    "dependentRequired", "dependentSchemas", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords that mean nothing in drafts before 2019-09."""
_OPAQUE = ("if", "then", "else", "$dynamicRef", "$recursiveRef")
"""Keywords that are not understood here."""
_MAX_REFERENCES = 100
"""How many references may lead from one to the next."""

TypeName = Literal["string", "number", "object", "array", "boolean", "null"]
Criterion = Literal["allOf", "anyOf", "oneOf"]
_TYPES: dict[JsonValue, TypeName] = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "object": "object",
    "array": "array",
    "boolean": "boolean",
    "null": "null",
}
_TYPES_WITH_KEYWORDS: tuple[TypeName, ...] = ("string", "number", "object", "array")
_CRITERIA: tuple[Criterion, ...] = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True, slots=True, eq=False)
class Anything:
    """Demands nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Nothing:
    """Takes no value."""


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """Values of a type; if not `demanded`, values of other types are taken, too."""

    name: TypeName
    part: Part
    keywords: JsonObject
    demanded: bool = True
    integer: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OneOfValues:
    """The values of an `enum`, or the one of a `const`."""

    values: frozenset[str]
    """As JSON."""
    is_constant: bool


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """The values that the part does not take."""

    part: Part


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """All, any or one of several."""

    criterion: Criterion
    members: "tuple[Part | Shape, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """Keywords that are not understood here."""

    keywords: JsonObject


ANYTHING = Anything()
NOTHING = Nothing()

Shape: TypeAlias = Anything | Nothing | Typed | OneOfValues | Not | Combined | Opaque


class Shapes:
    """The shapes of the parts of a schema, each made once, so that a part is known by its shape."""

    def __init__(self) -> None:
        self._known: dict[int, Shape] = {}
        self._kept: list[Part] = []

    def of(self, part: "Part | Shape") -> Shape:
        """Return the shape; that of a reference is that of what it leads to."""
        if not isinstance(part, Part):
            return part
        found = self._known.get(id(part.value))
        if found is None or not isinstance(part.value, dict):
            found = self._made(part)
            self._known[id(part.value)] = found
            self._kept.append(part)
        return found

    def _made(self, part: Part) -> Shape:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(part.value, dict) or "$ref" not in part.value:
                return shape_of(part)
            target = look_up(part, part.value["$ref"])
            beside = {name: each for name, each in part.value.items() if name != "$ref"}
            if part.modern and _demands(beside):
                return Combined("allOf", (target, Part(beside, part.resolver, part.modern)))
            part = target
        raise InvalidSchemaError("a '$ref' of the JSON Schema leads to itself")


def _demands(content: JsonObject) -> bool:
    keywords = {"type", "enum", "const", "not", "$ref", *_CRITERIA, *_OPAQUE}
    return not content.keys().isdisjoint(keywords.union(*KEYWORDS_OF_TYPE.values()))


def shape_of(part: Part) -> Shape:
    """Return the shape of a schema without `$ref`."""
    match part.value:
        case False:
            return NOTHING
        case dict() as content:
            if not part.modern:
                content = {name: each for name, each in content.items() if name not in _LATER}
            members = [*_typed(part, content), *_values(content), *_combined(part, content)]
            if len(members) > 1:
                return Combined("allOf", tuple(members))
            return members[0] if members else ANYTHING
        case _:
            return ANYTHING


def _typed(part: Part, content: JsonObject) -> list[Shape]:
    names = content.get("type")
    if names is None:
        return [
            Typed(name, part, content, demanded=False)
            for name in _TYPES_WITH_KEYWORDS
            if any(keyword in content for keyword in KEYWORDS_OF_TYPE[name])
        ]
    found = [
        Typed(_TYPES[name], part, content, integer=name == "integer")
        for name in (names if isinstance(names, list) else [names])
        if isinstance(name, str) and name in _TYPES
    ]
    return [found[0] if len(found) == 1 else Combined("anyOf", tuple(found))]


def _values(content: JsonObject) -> list[Shape]:
    found: list[Shape] = []
    if isinstance(listed := content.get("enum"), list):
        found.append(OneOfValues(frozenset(as_text(each) for each in listed), is_constant=False))
    if "const" in content:
        found.append(OneOfValues(frozenset((as_text(content["const"]),)), is_constant=True))
    return found


def _combined(part: Part, content: JsonObject) -> list[Shape]:
    found: list[Shape] = [
        Combined(criterion, tuple(part.inside(each) for each in members))
        for criterion in _CRITERIA
        if isinstance(members := content.get(criterion), list)
    ]
    if "not" in content:
        found.append(Not(part.inside(content["not"])))
    opaque = {name: content[name] for name in _OPAQUE if name in content}
    if opaque:
        found.append(Opaque(opaque))
    return found


def as_text(value: JsonValue) -> str:
    """Return the JSON by which two values are the same: 1 and 1.0 are."""
    return compact_json(sorted_json(_as_integers(value)))


def _as_integers(value: JsonValue) -> JsonValue:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_as_integers(each) for each in value]
        case dict():
            return {name: _as_integers(each) for name, each in value.items()}
        case _:
            return value


_HOLDERS = ("properties", "patternProperties", "dependencies", "dependentSchemas")
_HELD = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems",
    "prefixItems", "unevaluatedItems", "contains",
)  # fmt: skip


def parts_inside(shape: Shape) -> list[Part | Shape]:
    """Return the schemas directly inside of one; what is not understood has none."""
    match shape:
        case Combined(members=members):
            return [*members]
        case Not(part=part):
            return [part]
        case Typed(part=part, keywords=keywords):
            held = [keywords.get(name) for name in _HELD]
            for name in _HOLDERS:
                content = keywords.get(name)
                held += content.values() if isinstance(content, dict) else ()
            listed = [one for each in held if isinstance(each, list) for one in each]
            return [part.inside(each) for each in (*held, *listed) if isinstance(each, dict)]
        case _:
            return []
