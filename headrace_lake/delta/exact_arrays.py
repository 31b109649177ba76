"""Gives rows the exact types of a table's files: nested parts that are never null say so.

Arrow casts no array to such a type where the part around it is null, so the same buffers are put
under the other type. A null that must not be there is refused when the file is written.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.protocol.typed.arrow_types import same_layout


def with_exact_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the types of the schema, which has the same columns."""
    if rows.schema.equals(schema):
        return rows
    columns = [_exact(rows[each.name], each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _exact(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    if same_layout(column.type, kind):
        return pa.chunked_array([_under(each, kind) for each in column.chunks], kind)
    return pc.cast(column, kind)


def _under(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    buffers = array.buffers()
    if pa.types.is_struct(kind):
        parts = [_under(array.field(each), kind.field(each).type) for each in range(len(kind))]
        return pa.Array.from_buffers(kind, len(array), buffers[:1], array.null_count, 0, parts)
    if pa.types.is_map(kind):
        keys = _under(array.keys, kind.key_type)
        items = _under(array.items, kind.item_type)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[kind.key_field, kind.item_field]
        )
        return pa.Array.from_buffers(kind, len(array), buffers[:2], array.null_count, 0, [entries])
    values = _under(array.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(array), buffers[:2], array.null_count, 0, [values])
