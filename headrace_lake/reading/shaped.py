"""Rows as they were read, in the columns and types of a table's files."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_DATE = "_date"


def shaped(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of all batches with the columns of `schema`, by their names: an interval is its
    microseconds, `_date` the day of `_timestamp` in UTC, and a column that was not read is null."""
    table = pa.Table.from_batches(batches)
    return pa.Table.from_arrays([_column(table, field) for field in schema], schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    place = table.schema.get_field_index(field.name)
    if place >= 0:
        found = table.column(place)
        return found if found.type == field.type else found.cast(field.type)
    if field.name == _DATE:
        return pc.cast(table.column("_timestamp"), pa.date32(), safe=False)
    return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
