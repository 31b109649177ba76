"""Columns of a table's files as the log gives them: the same values in the types of the topic.

INTERVAL is a whole number in a table; nested parts that are never null say so there; and whoever
puts files together may write texts, times or decimals in another form.
"""

import numpy as np
import pyarrow as pa

from storage_engine.protocol.records.arrow_kernels import as_type, take
from storage_engine.protocol.typed.nested_arrays import int_array


def as_log_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values in one array of the type."""
    return _as_type(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0), kind)


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, kind)
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_date(kind) and pa.types.is_integer(array.type):
        return as_type(as_type(array, pa.int32()), kind)
    if not pa.types.is_nested(kind):
        return as_type(array, kind)
    if array.offset:
        array = take(array, int_array(np.arange(len(array))))
    if pa.types.is_struct(kind):
        parts = [
            _as_type(array.field(array.type.get_field_index(each.name)), each.type) for each in kind
        ]
        return _under(array, kind, 1, parts)
    if pa.types.is_map(kind):
        keys, items = _as_type(array.keys, kind.key_type), _as_type(array.items, kind.item_type)
        fields = [kind.key_field, kind.item_field]
        return _under(array, kind, 2, [pa.StructArray.from_arrays([keys, items], fields=fields)])
    return _under(array, kind, 2, [_as_type(array.values, kind.value_type)])


def _under(array: pa.Array, kind: pa.DataType, buffers: int, parts: list[pa.Array]) -> pa.Array:
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:buffers], array.null_count, 0, parts
    )
