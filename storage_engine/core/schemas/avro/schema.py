"""The tree of an Avro schema.

A name that is used again is a `NamedReference`, which `AvroSchema.resolve` looks up: so a tree is
as large as its text, and a record may contain itself (`AvroSchema.is_recursive`).

Source: the specification of Apache Avro 1.12.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from storage_engine.core.schemas.json_text import JsonValue

Properties: TypeAlias = Mapping[str, JsonValue]
PrimitiveName = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


class NoDefault(enum.Enum):
    """The default of a field that has none; None is the default null."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


class Logical(enum.Enum):
    """The logical types without attributes."""

    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    TIMESTAMP_NANOS = "timestamp-nanos"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    LOCAL_TIMESTAMP_NANOS = "local-timestamp-nanos"
    UUID = "uuid"
    DURATION = "duration"


@dataclass(frozen=True, slots=True)
class Decimal:
    """The logical type `decimal` of bytes or fixed; 0 <= scale <= precision."""

    precision: int
    scale: int


LogicalType: TypeAlias = Logical | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class WithProperties:
    """Attributes that a written type may carry: `properties` are all that the specification does
    not reserve, and those of the logical type, in the order of the text."""

    properties: Properties = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Primitive(WithProperties):
    """A primitive type. A logical type that is unknown or does not fit is None, as Avro has it."""

    name: PrimitiveName
    logical: LogicalType | None = None


@dataclass(frozen=True, slots=True)
class Array(WithProperties):
    """A list of items."""

    items: "AvroType"


@dataclass(frozen=True, slots=True)
class Map(WithProperties):
    """Values by strings."""

    values: "AvroType"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, none of which is a union; no two are of the same kind, unless named."""

    branches: "tuple[AvroType, ...]"


@dataclass(frozen=True, slots=True)
class NamedReference:
    """Stands for the type with this full name, which is defined elsewhere in the schema, or in a
    schema that it refers to."""

    full_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(WithProperties):
    """A type with a name. Aliases are full names."""

    full_name: str
    aliases: tuple[str, ...] = ()
    doc: str | None = None

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace; "" for none."""
        return self.full_name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record. A default is a value of JSON as in the text: bytes and fixed are strings
    of characters up to U+00FF, and one of a union is of the first branch that it fits."""

    name: str
    type: "AvroType"
    default: "JsonValue | NoDefault" = field(default=NO_DEFAULT, hash=False)
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    order: Literal["ascending", "descending", "ignore"] = "ascending"
    properties: Properties = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Named):
    """A record; an error is one, too."""

    fields: tuple[Field, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Enum(Named):
    """One of `symbols`; a reader takes `default` for a symbol that it does not have."""

    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Named):
    """A number of bytes."""

    size: int
    logical: LogicalType | None = None


NamedType: TypeAlias = Record | Enum | Fixed
AvroType: TypeAlias = Primitive | Array | Map | Union | NamedReference | NamedType


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A whole schema: its outermost type, and all types with names, also of the schemas that it
    refers to, by full name."""

    root: AvroType
    names: Mapping[str, NamedType] = field(hash=False)

    def resolve(self, avro_type: AvroType) -> Primitive | Array | Map | Union | NamedType:
        """Return the type itself, or what a reference stands for."""
        return (
            self.names[avro_type.full_name] if isinstance(avro_type, NamedReference) else avro_type
        )

    @property
    def is_recursive(self) -> bool:
        """Whether a record contains itself, directly or through others."""
        return bool(recursive_names(self))


def is_floating(avro_type: AvroType) -> bool:
    return isinstance(avro_type, Primitive) and avro_type.name in ("float", "double")


def parts_of(avro_type: AvroType) -> tuple[AvroType, ...]:
    """Return the types directly inside of a type; a reference has none."""
    match avro_type:
        case Array():
            return (avro_type.items,)
        case Map():
            return (avro_type.values,)
        case Union():
            return avro_type.branches
        case Record():
            return tuple(each.type for each in avro_type.fields)
        case _:
            return ()


def walk(avro_type: AvroType) -> Iterator[AvroType]:
    """Yield a type and all that its text contains, outer ones first; no reference is followed."""
    waiting = [avro_type]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(parts_of(found)))


def recursive_names(schema: AvroSchema) -> frozenset[str]:
    """Return the full names of the types that have no end when references are followed: records
    that contain themselves, or another that does."""
    inside = {
        name: {
            part.full_name
            for outer in parts_of(named)
            for part in walk(outer)
            if isinstance(part, NamedReference)
        }
        for name, named in schema.names.items()
    }
    users: dict[str, list[str]] = {name: [] for name in inside}
    for name, used in inside.items():
        for each in used:
            users[each].append(name)
    ended = [name for name, used in inside.items() if not used]
    while ended:
        name = ended.pop()
        for user in users[name]:
            inside[user].discard(name)
            if not inside[user]:
                ended.append(user)
    return frozenset(name for name, used in inside.items() if used)
