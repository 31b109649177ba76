"""How the fields of a message look on the wire, said by their defaults.

    @dataclass(slots=True, kw_only=True)
    class CreatableTopicResult:
        name: str = string()
        topic_id: UUID = uuid(7)
        error_message: str | None = nullable_string()
        num_partitions: int = int32(5, default=-1)
        configs: Sequence[CreatableTopicConfigs] | None = nullable_structs(CreatableTopicConfigs, 5)

The numbers are the first and the last version with the field, inclusive. A field with a `tag` is
left out where it has its default (KIP-482); `null_from` is the first version in which it may be
null. `struct_codec` reads and writes messages along these.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from storage_engine.protocol.apis.wire import NO_TOPIC_ID, Reader, Writer

Value = TypeVar("Value")
Struct = TypeVar("Struct")

NEWEST = 32_767
NEVER = NEWEST + 1
WIRE = "wire"
"""The key of a `Wire` in the metadata of a dataclass's field."""


class Kind(NamedTuple, Generic[Value]):
    """How a value is read and written."""

    read: Callable[[Reader], Value]
    write: Callable[[Writer, Value], None]
    least_bytes: int
    """The fewest bytes that it takes."""
    packed: str = ""
    """The format with which `struct` packs it among its neighbours, if it does."""
    null: bytes = b""
    """How null is written; empty where the value is never null."""


AnyKind = Kind[Any]
"""A kind whose type of value follows only from the field and the version of its message."""


class Wire(NamedTuple):
    """One field on the wire."""

    kind: str | type | AnyKind
    """The name of a primitive type, or the class of a struct."""
    first: int
    last: int
    tag: int | None = None
    null_from: int = NEVER
    is_array: bool = False
    is_by_topic: bool = False


def _value(default: Value, wire: Wire) -> Value:
    return field(default=default, metadata={WIRE: wire})


def _array(
    kind: str | type, first: int, last: int, tag: int | None = None, null_from: int = NEVER
) -> list[Value]:
    wire = Wire(kind, first, last, tag, null_from, is_array=True)
    return field(default_factory=list, metadata={WIRE: wire})


def _nullable_array(
    kind: str | type, first: int, last: int, null_from: int, is_null: bool
) -> list[Value] | None:
    """`is_null`: whether the default is null instead of empty."""
    if is_null:
        return _value(None, Wire(kind, first, last, None, null_from, is_array=True))
    return _array(kind, first, last, None, null_from)


def int8(first: int = 0, last: int = NEWEST, *, default: int = 0) -> int:
    return _value(default, Wire("int8", first, last))


def int16(first: int = 0, last: int = NEWEST, *, default: int = 0, tag: int | None = None) -> int:
    return _value(default, Wire("int16", first, last, tag))


def int32(first: int = 0, last: int = NEWEST, *, default: int = 0) -> int:
    return _value(default, Wire("int32", first, last))


def int64(first: int = 0, last: int = NEWEST, *, default: int = 0, tag: int | None = None) -> int:
    return _value(default, Wire("int64", first, last, tag))


def float64(first: int = 0, last: int = NEWEST) -> float:
    return _value(0.0, Wire("float64", first, last))


def boolean(first: int = 0, last: int = NEWEST, *, default: bool = False) -> bool:
    return _value(default, Wire("bool", first, last))


def uuid(first: int = 0, last: int = NEWEST) -> UUID:
    return _value(NO_TOPIC_ID, Wire("uuid", first, last))


def string(first: int = 0, last: int = NEWEST, *, default: str = "") -> str:
    return _value(default, Wire("string", first, last))


def name() -> str:
    """A string that many messages have, such as a topic's name: it is decoded once and kept."""
    return _value("", Wire("name", 0, NEWEST))


def nullable_name(first: int = 0, *, null_from: int = 0) -> str | None:
    """A name that is null by default, which is written as an empty one before `null_from`."""
    return _value(None, Wire("name", first, NEWEST, None, null_from))


def nullable_string(
    first: int = 0, last: int = NEWEST, *, default: str | None = "", null_from: int = 0
) -> str | None:
    return _value(default, Wire("string", first, last, None, null_from))


def binary(first: int = 0, last: int = NEWEST) -> bytes:
    """Bytes, which `repr` does not show: some are secrets."""
    return field(default=b"", repr=False, metadata={WIRE: Wire("bytes", first, last)})


def struct(of: type[Struct], first: int = 0, last: int = NEWEST) -> Struct:
    """A struct that is never null; by default one with the defaults of its fields."""
    return field(default_factory=of, metadata={WIRE: Wire(of, first, last)})


def nullable_struct(
    of: type[Struct], first: int = 0, last: int = NEWEST, *, tag: int | None = None
) -> Struct | None:
    return _value(None, Wire(of, first, last, tag, 0))


def int8s(first: int = 0, last: int = NEWEST) -> Sequence[int]:
    return _array("int8", first, last)


def int32s(first: int = 0, last: int = NEWEST) -> Sequence[int]:
    return _array("int32", first, last)


def nullable_int32s(
    first: int = 0, last: int = NEWEST, *, is_null: bool = False
) -> Sequence[int] | None:
    return _nullable_array("int32", first, last, 0, is_null)


def int64s(first: int = 0, last: int = NEWEST) -> Sequence[int]:
    return _array("int64", first, last)


def strings(first: int = 0, last: int = NEWEST) -> Sequence[str]:
    return _array("string", first, last)


def names() -> Sequence[str]:
    return _array("name", 0, NEWEST)


def nullable_strings(first: int = 0, last: int = NEWEST) -> Sequence[str] | None:
    return _nullable_array("string", first, last, 0, is_null=False)


def nullable_names() -> Sequence[str] | None:
    """Names that are null by default."""
    return _nullable_array("name", 0, NEWEST, 0, is_null=True)


def structs(
    of: type[Struct], first: int = 0, last: int = NEWEST, *, tag: int | None = None
) -> Sequence[Struct]:
    return _array(of, first, last, tag)


def nullable_structs(
    of: type[Struct],
    first: int = 0,
    last: int = NEWEST,
    *,
    null_from: int = 0,
    is_null: bool = False,
) -> Sequence[Struct] | None:
    return _nullable_array(of, first, last, null_from, is_null)


def rows_by_topic(of: type[Struct]) -> Sequence[Struct]:
    """Rows that are grouped by topic on the wire: a group has the topic once, and each row gets it
    as its `topic`."""
    wire = Wire(of, 0, NEWEST, is_by_topic=True)
    return field(default_factory=list, metadata={WIRE: wire})


def custom(
    read: Callable[[Reader], Value],
    write: Callable[[Writer, Value], None],
    least_bytes: int,
    make: Callable[[], Value],
    *,
    tag: int | None = None,
) -> Value:
    """A field with a form of its own, in all versions; `make` makes its default."""
    wire = Wire(Kind(read, write, least_bytes), 0, NEWEST, tag)
    return field(default_factory=make, metadata={WIRE: wire})
