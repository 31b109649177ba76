"""The columns of a topic's table, as Delta names their types.

    topic                     Delta           in the file (Arrow)
    BOOLEAN                   boolean         bool
    TINYINT, SMALLINT         byte, short     int8, int16
    INT, BIGINT               integer, long   int32, int64
    FLOAT, DOUBLE             float, double   float, double
    DECIMAL(p, s)             decimal(p,s)    decimal128(p, s)
    STRING, BINARY, DATE      string, ...     string, binary, date32
    TIMESTAMP                 timestamp       timestamp[us, UTC]
    TIMESTAMP_NTZ             timestamp_ntz   timestamp[us]
    INTERVAL DAY TO SECOND    long            int64: microseconds, as Delta has no interval
    ARRAY, MAP, STRUCT        the same        with what is inside

Nested types keep what may be null inside. A column is NOT NULL as it is in the topic, but for those
outside of the key of a topic that has one: rows that say that a key is gone have nulls there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace_lake.protocol.stops import StopKind, TableStoppedError
from storage_engine.core.printable import printable
from storage_engine.core.schemas.json_text import JsonValue
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.typed.arrow_types import arrow_type

DeltaType = JsonValue
"""A name, or the object of a nested type, as in the schema of a table."""

DATE = "_date"
"""The day of `_timestamp` in UTC: a column of tables that are partitioned by it."""
DELETED = "_deleted"
"""True in rows that only say that their key is gone: a column of topics with a key."""

_NAMED: dict[types.ColumnType, str] = {
    types.BooleanColumn(): "boolean",
    types.IntegerColumn(8): "byte",
    types.IntegerColumn(16): "short",
    types.IntegerColumn(32): "integer",
    types.IntegerColumn(64): "long",
    types.FloatColumn(32): "float",
    types.FloatColumn(64): "double",
    types.StringColumn(): "string",
    types.BinaryColumn(): "binary",
    types.DateColumn(): "date",
    types.TimestampColumn(with_zone=True): "timestamp",
    types.TimestampColumn(with_zone=False): "timestamp_ntz",
    types.IntervalColumn(): "long",
}
_UNUSABLE = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta takes in no name of a column, without a mapping of columns."""
_PARTITIONABLE = (
    types.BooleanColumn,
    types.IntegerColumn,
    types.StringColumn,
    types.DateColumn,
)
MOST_PARTITION_COLUMNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeColumn:
    """A column of a table."""

    name: str
    type: types.ColumnType
    nullable: bool = True

    @property
    def delta_type(self) -> DeltaType:
        return _delta_type(self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeShape:
    """The columns of a table, and those by which its files are divided."""

    columns: tuple[LakeColumn, ...]
    partition_by: tuple[str, ...] = ()

    @property
    def row_schema(self) -> pa.Schema:
        """Return all columns, as rows are given to a writer of files."""
        return pa.schema([pa.field(each.name, file_type(each.type)) for each in self.columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeGrowth:
    """How a table must change before rows of a later schema are written to it."""

    added: tuple[LakeColumn, ...] = ()
    relaxed: tuple[str, ...] = ()
    """Columns that were NOT NULL, and may be null from now on."""

    @property
    def is_needed(self) -> bool:
        return bool(self.added or self.relaxed)


_PLACE = (
    LakeColumn(name="_topic", type=types.StringColumn(), nullable=False),
    LakeColumn(name="_partition", type=types.IntegerColumn(32), nullable=False),
    LakeColumn(name="_offset", type=types.IntegerColumn(64), nullable=False),
    LakeColumn(name="_timestamp", type=types.TimestampColumn(with_zone=True), nullable=False),
)
_HEADERS = types.ArrayColumn(
    types.StructColumn(
        (
            types.StructColumnField("key", types.StringColumn(), nullable=False),
            types.StructColumnField("value", types.BinaryColumn()),
        )
    ),
    element_nullable=False,
)
_OPAQUE = (
    LakeColumn(name="key", type=types.BinaryColumn()),
    LakeColumn(name="value", type=types.BinaryColumn()),
    LakeColumn(name="headers", type=_HEADERS),
    LakeColumn(name="timestamp", type=types.TimestampColumn(with_zone=True), nullable=False),
    LakeColumn(name="timestampType", type=types.IntegerColumn(32), nullable=False),
)


def opaque_shape(name: str, partition_by: Sequence[str] = ()) -> LakeShape:
    """Return the table of a topic without a schema."""
    return _shape(name, (*_OPAQUE, *_PLACE), partition_by)


def typed_shape(name: str, schema: TopicSchema, partition_by: Sequence[str] = ()) -> LakeShape:
    """Return the table of a topic with columns; TableStoppedError for those that Delta can't
    have."""
    return column_shape(
        name,
        [each for each in schema.latest.columns if not each.hidden],
        {each.column_id for each in schema.key_columns(schema.latest)},
        partition_by,
    )


def column_shape(
    name: str,
    columns: Sequence[SchemaColumn],
    key: set[int],
    partition_by: Sequence[str] = (),
) -> LakeShape:
    """Return the table of these columns; `key` has the ids of those of the key."""
    found = [
        LakeColumn(
            name=each.name,
            type=each.type,
            nullable=each.nullable or (bool(key) and each.column_id not in key),
        )
        for each in columns
    ]
    gone = [LakeColumn(name=DELETED, type=types.BooleanColumn(), nullable=False)] if key else []
    return _shape(name, (*found, *_PLACE, *gone), partition_by)


def growth(name: str, table: Sequence[tuple[str, DeltaType, bool]], shape: LakeShape) -> LakeGrowth:
    """Return what the table lacks for rows of this shape; TableStoppedError when it can't get it.

    `table` has the name, type and nullability of each of its columns. Those that the shape lacks
    are null in its rows.
    """
    known = {each.lower(): (each, delta_type, nullable) for each, delta_type, nullable in table}
    added, relaxed = [], []
    for column in shape.columns:
        there = known.pop(column.name.lower(), None)
        if there is None:
            added.append(column)
            continue
        exact, delta_type, nullable = there
        if exact != column.name:
            raise _unfit(name, f"its column '{printable(exact)}' differs from the topic's in case")
        if delta_type != column.delta_type:
            raise _unfit(
                name,
                f"its column '{printable(exact)}' is {_shown(delta_type)}, and the topic's is "
                f"{_shown(column.delta_type)}",
            )
        if column.nullable and not nullable:
            relaxed.append(exact)
    relaxed += [exact for exact, _, nullable in known.values() if not nullable]
    for column in added:
        if not column.nullable:
            raise _unfit(name, f"it lacks the column '{printable(column.name)}', which is NOT NULL")
    return LakeGrowth(added=tuple(added), relaxed=tuple(relaxed))


def file_type(column_type: types.ColumnType) -> pa.DataType:
    """Return the Arrow type in which values of the column stand in files. What is never null inside
    says so: Arrow reads such a part of a table only from a file that says the same."""
    match column_type:
        case types.IntervalColumn():
            return pa.int64()
        case types.ArrayColumn(element, nullable):
            return pa.list_(pa.field("element", file_type(element), nullable))
        case types.MapColumn(key, value, nullable):
            return pa.map_(file_type(key), pa.field("value", file_type(value), nullable))
        case types.StructColumn(fields):
            return pa.struct(
                [pa.field(each.name, file_type(each.type), each.nullable) for each in fields]
            )
        case _:
            return arrow_type(column_type)


def _shape(name: str, columns: tuple[LakeColumn, ...], partition_by: Sequence[str]) -> LakeShape:
    if DATE in partition_by:
        day = LakeColumn(name=DATE, type=types.DateColumn(), nullable=False)
        columns = (*columns, day)
    _check_names(name, [each.name for each in columns])
    for column in columns:
        _check_fields(name, column.type)
    by_name = {each.name: each for each in columns}
    for each in partition_by:
        column_or_none = by_name.get(each)
        if column_or_none is None:
            raise _unfit(
                name, f"there is no column '{printable(each)}' to divide its files by: name another"
            )
        if not isinstance(column_or_none.type, _PARTITIONABLE):
            raise _unfit(
                name,
                f"files can't be divided by '{printable(each)}': name columns of whole numbers, "
                f"STRING, BOOLEAN or DATE, or {DATE}",
            )
    if len(partition_by) > MOST_PARTITION_COLUMNS or len(set(partition_by)) < len(partition_by):
        raise _unfit(
            name,
            f"name each column to divide files by once, and at most {MOST_PARTITION_COLUMNS}",
        )
    if len(partition_by) == len(columns):
        raise _unfit(name, "leave a column by which files are not divided")
    return LakeShape(columns=columns, partition_by=tuple(partition_by))


def _check_names(name: str, names: Sequence[str]) -> None:
    known: dict[str, str] = {}
    for each in names:
        if _UNUSABLE.search(each):
            raise _unfit(
                name,
                f"Delta has no columns with such a name as '{printable(each)}': use names without "
                "blanks, commas, semicolons, brackets and =",
            )
        if each.lower() in known:
            raise _unfit(
                name,
                f"the columns '{printable(known[each.lower()])}' and '{printable(each)}' differ in "
                "case alone, or not at all: rename one",
            )
        known[each.lower()] = each


def _check_fields(name: str, column_type: types.ColumnType) -> None:
    if isinstance(column_type, types.StructColumn):
        _check_names(name, [each.name for each in column_type.fields])
    for each in types.parts_of(column_type):
        _check_fields(name, each)


def _delta_type(column_type: types.ColumnType) -> DeltaType:
    match column_type:
        case types.DecimalColumn(precision, scale):
            return f"decimal({precision},{scale})"
        case types.ArrayColumn(element, nullable):
            inner = _delta_type(element)
            return {"type": "array", "elementType": inner, "containsNull": nullable}
        case types.MapColumn(key, value, nullable):
            return {
                "type": "map",
                "keyType": _delta_type(key),
                "valueType": _delta_type(value),
                "valueContainsNull": nullable,
            }
        case types.StructColumn(fields):
            return {
                "type": "struct",
                "fields": [
                    {
                        "name": each.name,
                        "type": _delta_type(each.type),
                        "nullable": each.nullable,
                        "metadata": {},
                    }
                    for each in fields
                ],
            }
        case _:
            return _NAMED[column_type]


def _shown(delta_type: DeltaType) -> str:
    text = str(delta_type)
    return printable(text if len(text) <= 200 else f"{text[:197]}...")


def _unfit(name: str, problem: str) -> TableStoppedError:
    return TableStoppedError(StopKind.COLUMNS, f"the table of {name}: {problem}")
