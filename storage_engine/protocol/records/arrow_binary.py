"""Arrow's variable-size binary arrays as numpy columns, and back.

Payload bytes are copied once, by one Arrow kernel (join or take), never by Python.
`pyarrow.compute` is imported where it is needed: `arrow_kernels.py` says why.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.errors import InvalidRecordError
from storage_engine.protocol.records.arrow_kernels import take
from storage_engine.protocol.records.varints import Ints, Number, VarintColumn, write_column

Offsets = npt.NDArray[np.int32] | Ints
"""The offsets of an array, int32 or int64 by its type."""

NULL_LENGTH = -1
"""The length that stands for null in a record."""

LARGEST_ARRAY_BYTES = 0x7FFF_FFFF
"""The most bytes of a binary array, whose offsets have 32 bits."""

_NO_BYTES = pa.py_buffer(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryValues:
    """The parts of a binary or string array."""

    lengths: Ints
    """The length of each row; NULL_LENGTH for a null."""
    offsets: Offsets
    """Row i is data[offsets[i] : offsets[i + 1]]; a null row is empty."""
    data: pa.Buffer

    @property
    def all_null(self) -> bool:
        return not (self.lengths >= 0).any()

    def array(self, start: int, stop: int) -> pa.Array:
        """Return rows [start, stop) as a pa.BinaryArray on the same bytes; nulls become empty."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        offsets = (self.offsets[start : stop + 1] - self.offsets[start]).astype(
            np.int32, copy=False
        )
        return binary_array(offsets, self.data.slice(first, last - first))


def binary_array(offsets: npt.NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    """Return a pa.BinaryArray over `data`."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])


def binary_scalar(value: bytes) -> pa.Scalar:
    """Return a pa.BinaryScalar. `pa.scalar` is not used, because it imports pandas where that is
    installed: half a second for every Spark process that imports a codec and may encode nothing."""
    return binary_array(np.array([0, len(value)], np.int32), pa.py_buffer(value))[0]


def _int32_array(numbers: npt.NDArray[np.int32]) -> pa.Array:
    """A pa.Int32Array over `numbers`. Not by `pa.array`, for the sake of which pyarrow imports
    pandas, as in `binary_scalar`: the first read of each of Spark's Python workers would wait."""
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def int64_values(array: pa.Array) -> Ints:
    """A pa.Int64Array without nulls, not copied. Not by `to_numpy`, which imports pandas too."""
    if not len(array):
        return np.empty(0, np.int64)
    return numbers_in(array.buffers()[1], np.int64, array.offset, len(array))


def numbers_in(
    buffer: pa.Buffer, kind: type[Number], start: int, count: int
) -> npt.NDArray[Number]:
    """Return `count` numbers of a pa.Buffer from number `start` on. Arrow's messages may have
    buffers that end with a part of a number."""
    return np.frombuffer(buffer, kind, count, start * np.dtype(kind).itemsize)


_EMPTY = binary_scalar(b"")


def as_column(array: pa.Array | pa.ChunkedArray, name: str) -> BinaryValues:
    """Take `array` (pa.Array or pa.ChunkedArray) apart; InvalidRecordError for other types."""
    array = one_array(_as_plain_binary(array, name))
    count = len(array)
    if pa.types.is_null(array.type) or not count:
        return BinaryValues(
            lengths=np.full(count, NULL_LENGTH, np.int64),
            offsets=np.zeros(count + 1, np.int32),
            data=_NO_BYTES,
        )
    offsets = _offsets_of(array)
    lengths = np.diff(offsets).astype(np.int64, copy=False)
    if array.null_count:
        import pyarrow.compute as pc

        is_null = pc.is_null(array).to_numpy(zero_copy_only=False)
        if lengths[is_null].any():
            return as_column(_with_empty_nulls(array), name)
        lengths[is_null] = NULL_LENGTH
    return BinaryValues(lengths=lengths, offsets=offsets, data=array.buffers()[2] or _NO_BYTES)


def _as_plain_binary(array: pa.Array | pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
    kind = array.type
    if (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    ):
        return array
    if pa.types.is_dictionary(kind):
        return _as_plain_binary(array.cast(kind.value_type), name)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    raise InvalidRecordError(f"{name} has type {kind}: cast it to binary or string")


def one_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a chunked array in one piece."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    narrow = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if narrow and array.nbytes > LARGEST_ARRAY_BYTES:
        array = array.cast(pa.large_binary())
    return array.combine_chunks()


def _offsets_of(array: pa.Array) -> Offsets:
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    buffer, start, count = array.buffers()[1], array.offset, len(array) + 1
    if wide:
        return numbers_in(buffer, np.int64, start, count)
    return numbers_in(buffer, np.int32, start, count)


def _with_empty_nulls(array: pa.Array) -> pa.Array:
    """Return the same rows; a null that hides bytes (Arrow allows it) becomes an empty null."""
    import pyarrow.compute as pc

    filled = pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(array.type))
    return pc.if_else(pc.is_valid(array), filled, pa.scalar(None, array.type))


def join(*columns: pa.Array | pa.Scalar) -> pa.Array:
    """Join, row by row, the bytes of all columns (arrays without nulls, scalars)."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, _EMPTY)


def varint_rows(*columns: VarintColumn, rooms: Ints) -> pa.Array:
    """Encode, row by row, the varints of all columns, behind rooms[i] zero bytes."""
    width = rooms.copy()
    for column in columns:
        width += column.sizes
    ends = np.cumsum(width)
    target = np.zeros(int(ends[-1]), np.uint8)
    positions = ends - width + rooms
    offsets = np.empty(len(ends) + 1, np.int32)
    offsets[0] = 0
    offsets[1:] = ends
    for column in columns:
        write_column(target, positions, column)
        positions += column.sizes
    return binary_array(offsets, pa.py_buffer(target))


def gather(source: pa.Buffer, starts: Ints, lengths: Ints) -> pa.Array:
    """Copy the ranges of `source` (a pa.Buffer), ascending and without overlap, into a
    pa.BinaryArray.

    A length of NULL_LENGTH makes a null.
    """
    count = len(starts)
    is_null = lengths < 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    # The ranges and the gaps between them are the rows of one array; every other one is taken.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    np.add(starts, np.maximum(lengths, 0), out=bounds[1::2], casting="unsafe")
    rows = np.arange(0, 2 * count, 2, dtype=np.int32)
    taken = take(binary_array(bounds, source), _int32_array(rows))
    if not is_null.any():
        return taken
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    _, offsets, data = taken.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [validity, offsets, data])


def writable_bytes(array: pa.Array) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Return all bytes of a pa.BinaryArray that has no other user, to be written to, and where each
    row begins; the last entry is the end."""
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(array) + 1]
    view = memoryview(data).cast("B")[: int(offsets[-1])]
    return memoryview(bytearray(view)) if view.readonly else view, offsets
