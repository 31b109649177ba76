"""Computes the partitions of records for whole columns of keys at once.

The same key goes where Kafka's own producers send it: murmur2 of its bytes, sign bit off, modulo
the number of partitions. Python runs per 4 bytes of the longest key, not per key. Source: R-CLI1;
Kafka's DefaultPartitioner.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 16_384
"""Rows hashed together: their columns stay in the CPU's cache."""

Uint32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

_FEW_KEYS = 4
"""Up to this many keys that are longer than all others are hashed one by one: a numpy pass costs as
much as 20 steps in Python."""


def partitions_for_keys(
    keys: "pa.Array | pa.ChunkedArray", partition_count: int, *, null_partition: int = 0
) -> npt.NDArray[np.int32]:
    """The partition of each row of a binary or string column; rows without a key get
    `null_partition`."""
    hashes = murmur2(keys)
    partitions = ((hashes & np.uint32(_POSITIVE)) % np.uint32(partition_count)).astype(np.int32)
    if keys.null_count:
        partitions[np.asarray(keys.is_null())] = null_partition
    return partitions


def murmur2(keys: "pa.Array | pa.ChunkedArray") -> Uint32s:
    """Kafka's murmur2 of each row's bytes; of no bytes where a row is null."""
    chunks: Sequence[pa.Array] = keys.chunks if hasattr(keys, "chunks") else [keys]
    if len(chunks) != 1:
        hashed = [murmur2(chunk) for chunk in chunks]
        return np.concatenate(hashed) if hashed else np.empty(0, np.uint32)
    data, starts, lengths = _bytes_of(chunks[0])
    hashes = np.empty(len(starts), np.uint32)
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        hashes[block] = _hash(data, starts[block], lengths[block])
    return hashes


def _bytes_of(keys: "pa.Array") -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """All bytes of the column, and the position and length of each row's."""
    import pyarrow as pa

    if not (pa.types.is_binary(keys.type) or pa.types.is_string(keys.type)):
        keys = keys.cast(pa.binary())
    _, offsets_buffer, data_buffer = keys.buffers()
    if not len(keys) or offsets_buffer is None:
        return np.empty(0, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    if keys.null_count:
        lengths[np.asarray(keys.is_null())] = 0
    return data, starts, lengths


def _hash(data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> Uint32s:
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    # Every position of the data read as a little-endian word; the last three have none.
    words: Uint32s = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    word_counts = lengths // 4
    step = int(word_counts.min())
    for position in range(0, 4 * step, 4):
        hashes = _mix(hashes, words[starts + position])
    rows = np.flatnonzero(word_counts > step)
    while len(rows):
        if len(rows) <= _FEW_KEYS:
            _finish_one_by_one(hashes, words, starts, word_counts, rows, step)
            break
        hashes[rows] = _mix(hashes[rows], words[starts[rows] + 4 * step])
        step += 1
        rows = rows[word_counts[rows] > step]
    _mix_tail(hashes, data, starts, lengths)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix(hashes: Uint32s, words: Uint32s) -> Uint32s:
    """`hashes` and `words` are used up."""
    words *= np.uint32(_M)
    words ^= words >> np.uint32(24)
    words *= np.uint32(_M)
    hashes *= np.uint32(_M)
    hashes ^= words
    return hashes


def _finish_one_by_one(
    hashes: Uint32s, words: Uint32s, starts: Int64s, word_counts: Int64s, rows: Int64s, step: int
) -> None:
    for row in rows.tolist():
        value = int(hashes[row])
        first, last = int(starts[row]) + 4 * step, int(starts[row] + 4 * word_counts[row])
        for word in words[first:last:4].tolist():
            word = word * _M & _MASK
            word ^= word >> 24
            value = (value * _M & _MASK) ^ (word * _M & _MASK)
        hashes[row] = value


def _mix_tail(
    hashes: Uint32s, data: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s
) -> None:
    """The one to three bytes after the last whole word."""
    left = lengths & 3
    ends = starts + (lengths & ~3)
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        hashes[rows] ^= data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(left)
    hashes[rows] *= np.uint32(_M)
