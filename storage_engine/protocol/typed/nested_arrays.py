"""Nested arrays taken apart, without copies where Arrow has them so already.

Arrow's arrays may have rows before their first and bytes behind nulls; what comes from here has
neither.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.protocol.records.arrow_binary import binary_array, numbers_in
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.records.varints import Ints, Mask


def map_as_list(array: pa.Array) -> pa.Array:
    """Return a pa.MapArray as a list of structs of key and value: some kernels end the process when
    they get a map."""
    kind = array.type
    entries = pa.StructArray.from_arrays(
        [array.keys, array.items],
        fields=[pa.field("key", kind.key_type), pa.field("value", kind.item_type)],
    )
    validity, offsets = array.buffers()[:2]
    if offsets is None or not len(array):
        offsets = pa.py_buffer(bytes(4 * (array.offset + 1)))
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(array),
        [validity, offsets],
        null_count=array.null_count,
        offset=array.offset,
        children=[entries],
    )


def list_lengths(array: pa.Array) -> Ints:
    """Return the number of elements of each list, 0 for a null."""
    if not len(array):
        return np.zeros(0, np.int64)
    offsets = numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1)
    lengths: Ints = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[null_mask(array)] = 0
    return lengths


def null_mask(array: pa.Array) -> Mask:
    """Return a numpy column that is true for each null."""
    return bits(kernel("is_null", array))


def bits(array: pa.Array) -> Mask:
    """Return a pa.BooleanArray without nulls as a numpy column."""
    data = array.buffers()[1]
    if not len(array) or data is None:
        return np.zeros(len(array), np.bool_)
    unpacked = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return unpacked[array.offset : array.offset + len(array)].astype(np.bool_)


def boolean_array(mask: Mask) -> pa.Array:
    """Return a numpy column of truths as a pa.BooleanArray."""
    packed = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(packed)])


def int_array(column: npt.NDArray[np.int32] | Ints) -> pa.Array:
    """Return a numpy column of int32 or int64 as an Arrow array, not copied."""
    kind = pa.int32() if column.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def one_value(kind: pa.DataType, data: bytes) -> pa.Scalar:
    """Return a pa.Scalar of a type of fixed width from its bytes. Not by `pa.scalar`, which imports
    pandas."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def binary_values(values: Sequence[bytes]) -> pa.Array:
    """Return a pa.BinaryArray of a few values."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=ends[1:])
    return binary_array(ends, pa.py_buffer(b"".join(values)))


def first_bad(count: int, read: Callable[[int, int], pa.Array | list[pa.Array]]) -> int:
    """Return the first of `count` values that can't be read, one of which can't: `read` of some of
    them raises an error then. Each step reads half of what is left: all of them together as much as
    there is."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            read(low, middle)
        except (ValueError, pa.ArrowException):
            high = middle
        else:
            low = middle
    return low
