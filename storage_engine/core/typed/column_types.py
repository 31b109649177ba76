"""The types of a typed topic's columns, and their names in Spark's DDL.

A type is a value: equal types compare equal. Sizes are bounded here for every way in which a type
comes to us, before anything walks it in another way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import is_text, printable

MAX_DEPTH = 16
"""How deep types may be nested; a column that is not nested has depth 1."""

MAX_COLUMNS = 2_000
"""The most columns of a topic; nested fields, elements, keys and values of maps count as well."""

MAX_PRECISION = 38
"""The most digits of a decimal: what 128 bits hold."""

MAX_NAME_LENGTH = 255


@dataclass(frozen=True, slots=True)
class BooleanColumn:
    """BOOLEAN."""


@dataclass(frozen=True, slots=True)
class IntegerColumn:
    """TINYINT, SMALLINT, INT, BIGINT: signed."""

    bits: int
    """8, 16, 32 or 64."""


@dataclass(frozen=True, slots=True)
class FloatColumn:
    """FLOAT, DOUBLE."""

    bits: int
    """32 or 64."""


@dataclass(frozen=True, slots=True)
class DecimalColumn:
    """DECIMAL(precision, scale): `scale` of the `precision` digits stand behind the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MAX_PRECISION:
            raise ConfigError(
                f"DECIMAL({self.precision},{self.scale}): the precision must be from 1 to "
                f"{MAX_PRECISION}"
            )
        if not 0 <= self.scale <= self.precision:
            raise ConfigError(
                f"DECIMAL({self.precision},{self.scale}): the scale must be from 0 to the precision"
            )


@dataclass(frozen=True, slots=True)
class StringColumn:
    """STRING: UTF-8."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """BINARY."""


@dataclass(frozen=True, slots=True)
class DateColumn:
    """DATE: days since 1970-01-01."""


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """TIMESTAMP (`with_zone`: an instant), TIMESTAMP_NTZ: microseconds since 1970-01-01."""

    with_zone: bool


@dataclass(frozen=True, slots=True)
class IntervalColumn:
    """INTERVAL DAY TO SECOND: microseconds."""


@dataclass(frozen=True, slots=True)
class ArrayColumn:
    """ARRAY<element>."""

    element: "ColumnType"
    element_nullable: bool = True


@dataclass(frozen=True, slots=True)
class MapColumn:
    """MAP<key, value>; keys are never null."""

    key: "ColumnType"
    value: "ColumnType"
    value_nullable: bool = True


@dataclass(frozen=True, slots=True)
class StructColumnField:
    """A field of a STRUCT."""

    name: str
    type: "ColumnType"
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class StructColumn:
    """STRUCT<name: type, ...>."""

    fields: tuple[StructColumnField, ...]


ColumnType = (
    BooleanColumn
    | IntegerColumn
    | FloatColumn
    | DecimalColumn
    | StringColumn
    | BinaryColumn
    | DateColumn
    | TimestampColumn
    | IntervalColumn
    | ArrayColumn
    | MapColumn
    | StructColumn
)


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column as it is asked for, before it has an id."""

    name: str
    type: ColumnType
    nullable: bool = True
    hidden: bool = False


_NAMES: dict[ColumnType, str] = {
    BooleanColumn(): "BOOLEAN",
    IntegerColumn(8): "TINYINT",
    IntegerColumn(16): "SMALLINT",
    IntegerColumn(32): "INT",
    IntegerColumn(64): "BIGINT",
    FloatColumn(32): "FLOAT",
    FloatColumn(64): "DOUBLE",
    StringColumn(): "STRING",
    BinaryColumn(): "BINARY",
    DateColumn(): "DATE",
    TimestampColumn(with_zone=True): "TIMESTAMP",
    TimestampColumn(with_zone=False): "TIMESTAMP_NTZ",
    IntervalColumn(): "INTERVAL DAY TO SECOND",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def ddl_of(column_type: ColumnType, *, exact: bool = False) -> str:
    """Return the type in Spark's DDL.

    Spark's DDL can't say that the elements of an array or the values of a map are never null; with
    `exact` this is said, too, as `ARRAY<INT NOT NULL>`, which `parse_ddl` reads.
    """
    match column_type:
        case DecimalColumn(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case ArrayColumn(element, nullable):
            return f"ARRAY<{_part(element, nullable or not exact, exact)}>"
        case MapColumn(key, value, nullable):
            inner = _part(value, nullable or not exact, exact)
            return f"MAP<{ddl_of(key, exact=exact)}, {inner}>"
        case StructColumn(fields):
            inner = ", ".join(
                f"{quoted_name(field.name)}: {_part(field.type, field.nullable, exact)}"
                for field in fields
            )
            return f"STRUCT<{inner}>"
        case _:
            return _NAMES[column_type]


def _part(column_type: ColumnType, nullable: bool, exact: bool) -> str:
    return ddl_of(column_type, exact=exact) + ("" if nullable else " NOT NULL")


def quoted_name(name: str) -> str:
    """Return the name as DDL has it: in backquotes where it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def nullable_form(column_type: ColumnType) -> ColumnType:
    """Return the type with every nested part nullable: what readers declare."""
    match column_type:
        case ArrayColumn(element, _):
            return ArrayColumn(nullable_form(element))
        case MapColumn(key, value, _):
            return MapColumn(nullable_form(key), nullable_form(value))
        case StructColumn(fields):
            return StructColumn(
                tuple(StructColumnField(each.name, nullable_form(each.type)) for each in fields)
            )
        case _:
            return column_type


def parts_of(column_type: ColumnType) -> tuple[ColumnType, ...]:
    """Return the types right inside a nested one; none for others."""
    match column_type:
        case ArrayColumn(element, _):
            return (element,)
        case MapColumn(key, value, _):
            return (key, value)
        case StructColumn(fields):
            return tuple(field.type for field in fields)
        case _:
            return ()


def least_values(column_type: ColumnType) -> int:
    """Return how many values one value of the type has at least, with all that is inside of
    structs."""
    if isinstance(column_type, StructColumn):
        return 1 + sum(least_values(each.type) for each in column_type.fields)
    return 1


def check_types(column_types: Iterable[ColumnType]) -> None:
    """ConfigError when the types of a topic's columns exceed MAX_DEPTH or MAX_COLUMNS, or a nested
    field's name is not usable. The walk ends at the first excess, so it is short for any types."""
    count = 0
    waiting = [(each, 1) for each in column_types]
    while waiting:
        column_type, depth = waiting.pop()
        count += 1
        if count + len(waiting) > MAX_COLUMNS:
            raise too_many_columns()
        if depth > MAX_DEPTH:
            raise too_deep()
        if isinstance(column_type, StructColumn):
            check_field_names(field.name for field in column_type.fields)
        waiting += [(each, depth + 1) for each in parts_of(column_type)]


class TypeCount:
    """Counts the types of a schema while it is read, before anything walks them."""

    def __init__(self) -> None:
        self._count = 0

    def step(self, depth: int) -> None:
        """ConfigError when there are too many, or this one lies too deep."""
        self._count += 1
        if self._count > MAX_COLUMNS:
            raise too_many_columns()
        if depth > MAX_DEPTH:
            raise too_deep()


def too_many_columns() -> ConfigError:
    return ConfigError(
        f"the schema has more than {MAX_COLUMNS:,} columns, nested fields, elements, keys and "
        "values: leave out some, or keep them as one STRING or BINARY"
    )


def too_deep() -> ConfigError:
    return ConfigError(
        f"types are nested more than {MAX_DEPTH} deep: keep the inner part as STRING or BINARY"
    )


def check_field_names(names: Iterable[str]) -> None:
    """ConfigError for a name that no field may have, or that two have. A STRUCT needs a field."""
    known: set[str] = set()
    for name in names:
        check_name(name, what="field")
        if name.lower() in known:
            raise ConfigError(f"the field '{printable(name)}' stands twice in a STRUCT: rename one")
        known.add(name.lower())
    if not known:
        raise ConfigError(
            "a STRUCT without fields can't be stored: give it a field, or leave it out"
        )


def check_name(name: str, *, what: str) -> None:
    """ConfigError for a name that no column and no field may have."""
    if not name:
        raise ConfigError(f"a {what} has an empty name: name it")
    if len(name) > MAX_NAME_LENGTH:
        raise ConfigError(
            f"the {what} name '{printable(name[:40])}...' has {len(name):,} characters: use at "
            f"most {MAX_NAME_LENGTH}"
        )
    if not is_text(name) or not name.isprintable():
        raise ConfigError(
            f"the {what} name '{printable(name)}' has characters that can't be shown: rename it"
        )


_REMEDY = (
    "whole numbers may become larger ones, FLOAT may become DOUBLE, and DECIMAL may get more "
    "digits before the point; for another type add a column"
)


def check_widening(old: ColumnType, new: ColumnType, name: str) -> None:
    """ConfigError unless every value of `old` is one of `new`; `name` is the column's. Nested types
    keep their form, and may be wider inside."""
    match old, new:
        case _ if old == new:
            return
        case (IntegerColumn(was), IntegerColumn(bits)) | (
            FloatColumn(was),
            FloatColumn(bits),
        ):
            is_wider = bits > was
        case DecimalColumn(), DecimalColumn():
            is_wider = new.scale == old.scale and new.precision > old.precision
        case ArrayColumn(), ArrayColumn() if old.element_nullable == new.element_nullable:
            return check_widening(old.element, new.element, f"{name}.element")
        case MapColumn(), MapColumn() if old.value_nullable == new.value_nullable:
            check_widening(old.key, new.key, f"{name}.key")
            return check_widening(old.value, new.value, f"{name}.value")
        case StructColumn(), StructColumn() if _same_fields(old, new):
            for was_field, field in zip(old.fields, new.fields, strict=True):
                check_widening(was_field.type, field.type, f"{name}.{printable(field.name)}")
            return None
        case _:
            is_wider = False
    if not is_wider:
        raise ConfigError(
            f"column '{name}' can't change from {_shown(old)} to {_shown(new)}: {_REMEDY}"
        )


def _same_fields(old: StructColumn, new: StructColumn) -> bool:
    was = [(field.name, field.nullable) for field in old.fields]
    return was == [(field.name, field.nullable) for field in new.fields]


def _shown(column_type: ColumnType) -> str:
    text = ddl_of(column_type, exact=True)
    return printable(text if len(text) <= 200 else f"{text[:197]}...")
