"""Arrow arrays from buffers. `pa.array` is not used: it imports pandas where that is there."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.varints import Ints, Mask


def bits(mask: Mask | None) -> pa.Buffer | None:
    """Return the bitmap of a mask; None for None."""
    return None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))


def plain_array(kind: pa.DataType, values: npt.NDArray[np.generic], valid: Mask | None) -> pa.Array:
    """Return an array of numbers, or of what Arrow keeps as numbers."""
    return pa.Array.from_buffers(kind, len(values), [bits(valid), pa.py_buffer(values)])


def texts(values: Sequence[str]) -> pa.Array:
    """Return an array of strings."""
    encoded = [each.encode() for each in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def taken(array: pa.Array, rows: Ints, valid: Mask | None = None) -> pa.Array:
    """Return the rows of `array`; null where `valid` is false."""
    return take(array, plain_array(pa.int64(), np.ascontiguousarray(rows, np.int64), valid))


def validity(array: pa.Array) -> Mask | None:
    """Return where an array has values; None when it is everywhere."""
    if not array.null_count:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    return unpacked(array.buffers()[0], array.offset, len(array))


def unpacked(bitmap: pa.Buffer, offset: int, count: int) -> Mask:
    """Return `count` bits of a bitmap from bit `offset` on."""
    packed = np.frombuffer(bitmap, np.uint8)
    first = offset // 8
    found = np.unpackbits(packed[first : (offset + count + 7) // 8], bitorder="little")
    return found[offset - 8 * first :][:count].view(np.bool_)
