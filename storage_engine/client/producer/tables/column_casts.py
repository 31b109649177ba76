"""Casts the columns of a table to the types of a topic's schema, where that loses nothing.

Integers and floats become wider ones, large strings, views, dictionaries and run ends plain ones,
and times are counted in microseconds if every value can be. Whatever would change a value is an
error that names the column, and where one value is to blame its row.
"""

import numpy as np
import pyarrow as pa

from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.plain_arrays import plain
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    DateColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    IntervalColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    TimestampColumn,
    ddl_of,
)
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import first_bad


def cast_column(column: pa.ChunkedArray, wanted: ColumnType, name: str) -> pa.ChunkedArray:
    """The column in the Arrow type of `wanted`. SerializationError where that is not possible."""
    target = arrow_type(wanted)
    if column.type == target:
        return column
    chunks = []
    first_row = 0
    for chunk in column.chunks:
        chunks.append(_cast(chunk, wanted, name, first_row))
        first_row += len(chunk)
    return pa.chunked_array(chunks, target)


def _cast(array: pa.Array, wanted: ColumnType, name: str, first_row: int | None) -> pa.Array:
    """`first_row`: of the table; None inside of nested columns, whose rows are others."""
    target = arrow_type(wanted)
    array = plain(array)
    kind = array.type
    if kind == target:
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), target)
    match wanted:
        case StructColumn() if pa.types.is_struct(kind):
            return _cast_struct(array, wanted, name)
        case ArrayColumn() if _is_list(kind):
            values = _cast(array.flatten(), wanted.element, f"{name}.element", None)
            return pa.ListArray.from_arrays(
                _offsets(array, name), values, type=target, mask=_mask(array)
            )
        case MapColumn() if pa.types.is_map(kind):
            return _cast_map(array, wanted, name)
    if not _may_cast(kind, wanted):
        raise SerializationError(
            f"the table's column '{name}' is {kind}, the topic's is {ddl_of(wanted)} ({target}): "
            "cast it"
        )
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise _does_not_fit(array, wanted, name, first_row, error) from None


def _may_cast(kind: pa.DataType, wanted: ColumnType) -> bool:
    """Whether every value of the Arrow type is a value of the column's, or can be checked to be."""
    types = pa.types
    match wanted:
        case BooleanColumn():
            return bool(types.is_boolean(kind))
        case IntegerColumn(bits):
            if types.is_signed_integer(kind):
                return bool(kind.bit_width <= bits)
            return bool(types.is_unsigned_integer(kind) and kind.bit_width < bits)
        case FloatColumn(bits):
            return bool(types.is_floating(kind) and kind.bit_width <= bits)
        case DecimalColumn(precision, scale):
            return bool(
                types.is_decimal(kind)
                and kind.scale <= scale
                and kind.precision - kind.scale <= precision - scale
            )
        case StringColumn():
            return bool(types.is_string(kind) or types.is_large_string(kind))
        case BinaryColumn():
            return bool(
                types.is_binary(kind)
                or types.is_large_binary(kind)
                or types.is_fixed_size_binary(kind)
            )
        case DateColumn():
            return bool(types.is_date(kind))
        case TimestampColumn(with_zone):
            return bool(types.is_timestamp(kind) and (kind.tz is not None) is with_zone)
        case IntervalColumn():
            return bool(types.is_duration(kind))
        case _:
            return False


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        # `flatten` puts the elements of their lists in order; Arrow's cast loses some.
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _cast_struct(array: pa.Array, wanted: StructColumn, name: str) -> pa.Array:
    given = {field.name: place for place, field in enumerate(array.type)}
    if len(given) < array.type.num_fields:
        raise SerializationError(
            f"the table's column '{name}' has two fields of one name: rename one"
        )
    known = {field.name for field in wanted.fields}
    if unknown := [field for field in given if field not in known]:
        raise SerializationError(
            f"the table's column '{name}' has a field '{unknown[0]}', the topic's has "
            f"{', '.join(known)}: leave it out, or add a column to the topic"
        )
    target = arrow_type(wanted)
    children = []
    for field, target_field in zip(wanted.fields, target, strict=True):
        place = given.get(field.name)
        if place is not None:
            children.append(_cast(array.field(place), field.type, f"{name}.{field.name}", None))
        elif field.nullable:
            children.append(pa.nulls(len(array), target_field.type))
        else:
            raise SerializationError(
                f"the table's column '{name}' has no field '{field.name}', which is NOT NULL: "
                "give it"
            )
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _cast_map(array: pa.Array, wanted: MapColumn, name: str) -> pa.Array:
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    keys = _cast(array.keys.slice(first, last - first), wanted.key, f"{name}.key", None)
    values = _cast(array.items.slice(first, last - first), wanted.value, f"{name}.value", None)
    starts = pa.array(np.asarray(offsets) - np.int32(first), pa.int32())
    return pa.MapArray.from_arrays(starts, keys, values, type=arrow_type(wanted), mask=_mask(array))


def _offsets(array: pa.Array, name: str) -> pa.Array:
    """The offsets of a list into what `flatten` gives, which has nothing of null lists."""
    lengths = np.array(array.value_lengths().fill_null(0), np.int64)
    if array.null_count:
        lengths[np.asarray(array.is_null())] = 0
    ends = np.concatenate(([0], np.cumsum(lengths)))
    if ends[-1] > np.iinfo(np.int32).max:
        raise SerializationError(
            f"the table's column '{name}' has {ends[-1]} elements in one piece: send fewer rows "
            "at a time"
        )
    return pa.array(ends, pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _does_not_fit(
    array: pa.Array,
    wanted: ColumnType,
    name: str,
    first_row: int | None,
    error: pa.ArrowInvalid,
) -> SerializationError:
    """Finds the first value that can't be cast; only where there is one."""
    target = arrow_type(wanted)
    bad = first_bad(len(array), lambda start, stop: array.slice(start, stop - start).cast(target))
    row = "" if first_row is None else f" in row {first_row + bad}"
    value = array[bad].cast(pa.int64()) if pa.types.is_temporal(array.type) else array[bad]
    return SerializationError(
        f"the table's column '{name}'{row}: {array.type} {value} can't be {ddl_of(wanted)} "
        f"exactly ({error}): round it first"
    )
