"""Whether rows fit a version of a topic's schema: names, types, nulls. Nothing is converted."""

import difflib
from collections.abc import Sequence

import pyarrow as pa

from storage_engine.core.printable import printable
from storage_engine.core.typed.column_types import ddl_of
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.records.varints import Mask
from storage_engine.protocol.typed.arrays.ipc_message import (
    column_kind,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.arrays.not_null import first_null_inside
from storage_engine.protocol.typed.arrow_types import arrow_type, same_layout
from storage_engine.protocol.typed.nested_arrays import bits, boolean_array, list_lengths, null_mask
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError

_SMALL_BYTES = 4096


def fitting_columns(
    rows: pa.RecordBatch,
    schema: TopicSchema,
    version: SchemaVersion,
    *,
    tombstones: pa.Array | None = None,
) -> list[tuple[SchemaColumn, pa.Array]]:
    """Return the columns of a pa.RecordBatch that the version has, in its order, each validated;
    RowsDoNotFitError when there are others, or one does not fit. Tombstones lose what is not their
    key."""
    places = _places(rows, version)
    gone = None if tombstones is None else _gone(tombstones, rows.num_rows, schema)
    found = []
    for column in version.visible:
        place = places.get(column.name.lower())
        is_key = column.column_id in schema.key
        if place is None:
            if not column.nullable and rows.num_rows and (gone is None or is_key):
                raise RowsDoNotFitError(
                    f"the rows have no column '{printable(column.name)}', which is NOT NULL: add"
                    " it",
                    column=column.name,
                )
            continue
        found.append((column, _fitting(rows.column(place), column, gone, is_key=is_key)))
    return found


def fitting_arrays(
    arrays: Sequence[pa.Array], schema: TopicSchema, version: SchemaVersion, gone: Mask | None
) -> list[tuple[SchemaColumn, pa.Array]]:
    """Do the same with an array for each visible column, in their order. `gone` is true for
    tombstones, of which there are some if it is not None."""
    return [
        (column, _fitting(array, column, gone, is_key=column.column_id in schema.key))
        for column, array in zip(version.visible, arrays, strict=True)
    ]


def _fitting(array: pa.Array, column: SchemaColumn, gone: Mask | None, *, is_key: bool) -> pa.Array:
    array = _of_type(array, column)
    if gone is not None and not is_key:
        array = _without(array, gone)
    _check_nulls(array, column, None if is_key else gone)
    return array


def fitting_system_column(array: pa.Array, kind: pa.DataType, rows: int, name: str) -> pa.Array:
    """Return a column of timestamps, headers or tombstones, validated."""
    if len(array) != rows or not same_layout(array.type, kind):
        raise RowsDoNotFitError(
            f"{name} are {len(array)} values of {array.type}: give {rows} of {kind}", column=name
        )
    return _validated(as_type(array, kind), name)


def fitting_headers(headers: pa.Array, rows: int) -> pa.Array:
    """Return the headers, of which none has a null key. An empty list becomes null: one form for no
    headers."""
    array = fitting_system_column(headers, HEADERS_TYPE, rows, "headers")
    if array.flatten().flatten()[0].null_count:
        raise RowsDoNotFitError(
            "a record header has a null key: every header needs one", column="headers"
        )
    return _without(array, list_lengths(array) == 0)


def _places(rows: pa.RecordBatch, version: SchemaVersion) -> dict[str, int]:
    visible = {column.name.lower() for column in version.visible}
    places: dict[str, int] = {}
    for place, name in enumerate(rows.schema.names):
        folded = name.lower()
        if folded in places:
            raise RowsDoNotFitError(
                f"the rows have the column '{printable(name)}' twice: drop one", column=name
            )
        if folded not in visible:
            raise RowsDoNotFitError(_unknown(name, version), column=name)
        places[folded] = place
    return places


def _unknown(name: str, version: SchemaVersion) -> str:
    shown = printable(name)
    if any(column.name.lower() == name.lower() for column in version.columns):
        return f"the column '{shown}' is hidden in the topic's schema: drop it from the rows"
    near = difflib.get_close_matches(name, [column.name for column in version.visible], n=1)
    hint = f", is '{printable(near[0])}' meant" if near else ""
    return f"the topic's schema has no column '{shown}'{hint}: drop or rename it, or add the column"


def _gone(tombstones: pa.Array, rows: int, schema: TopicSchema) -> Mask | None:
    """Return a numpy column that is true for tombstones; None when there are none."""
    array = fitting_system_column(tombstones, pa.bool_(), rows, "tombstones")
    if array.null_count:
        raise RowsDoNotFitError("a tombstone is null: make it true or false", column="tombstones")
    gone = bits(array)
    if not gone.any():
        return None
    if not schema.key:
        raise RowsDoNotFitError(
            "the rows have tombstones, but the topic has no key columns to say what is gone",
            column="tombstones",
            row=int(gone.argmax()),
        )
    return gone


def _of_type(array: pa.Array, column: SchemaColumn) -> pa.Array:
    kind = arrow_type(column.type)
    if not same_layout(array.type, kind):
        raise RowsDoNotFitError(
            f"the column '{printable(column.name)}' has the Arrow type {array.type}, the topic's"
            f" {ddl_of(column.type)} is {kind}: cast it",
            column=column.name,
        )
    return as_type(_validated(array, column.name), kind)


def _validated(array: pa.Array, name: str) -> pa.Array:
    array = _compact(array)
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        text = " ".join(str(error).split())
        raise RowsDoNotFitError(
            f"the column '{printable(name)}' is no valid Arrow array: {text:.200}", column=name
        ) from None
    return array


def _compact(array: pa.Array) -> pa.Array:
    """Return a few rows of a large nested array without the rest, which would be validated with
    them each time."""
    if array.type.num_fields and array.get_total_buffer_size() > 2 * array.nbytes + _SMALL_BYTES:
        return read_message(write_message(array), column_kind(array.type))
    return array


def _without(array: pa.Array, gone: Mask) -> pa.Array:
    """Return the array with null where `gone` is true."""
    return kernel("if_else", boolean_array(gone), pa.nulls(len(array), array.type), array)


def _check_nulls(array: pa.Array, column: SchemaColumn, gone: Mask | None) -> None:
    if not column.nullable and array.null_count:
        missing = null_mask(array)
        if gone is not None:
            missing &= ~gone
        if missing.any():
            row = int(missing.argmax())
            raise RowsDoNotFitError(
                f"row {row} has null in the column '{printable(column.name)}', which is NOT NULL:"
                " give it a value, or drop the row",
                column=column.name,
                row=row,
            )
    inside = first_null_inside(array, column.type)
    if inside is not None:
        raise RowsDoNotFitError(
            f"row {inside} has null inside the column '{printable(column.name)}' of type"
            f" {ddl_of(column.type, exact=True)}: give each part that is NOT NULL a value",
            column=column.name,
            row=inside,
        )
