"""Decimals as Avro has them: the unscaled number in two's complement, big endian.

Arrow has 16 or 32 bytes of a decimal, little endian. As `bytes` a number has as few bytes as hold
it, as Java's `BigInteger.toByteArray` makes them; as `fixed` it is extended by its sign.
"""

import numpy as np
import pyarrow as pa

from storage_engine.protocol.records.arrow_binary import binary_array
from storage_engine.protocol.records.varints import Bytes, Ints, Mask


def shortest_bytes(array: pa.Array) -> pa.Array:
    """A pa.BinaryArray of a decimal array without nulls."""
    big = _big_endian(array)
    keeps = _first_kept(big)[:, None] <= np.arange(big.shape[1])
    offsets = np.zeros(len(big) + 1, np.int32)
    np.cumsum(keeps.sum(axis=1), out=offsets[1:])
    return binary_array(offsets, pa.py_buffer(np.ascontiguousarray(big[keeps])))


def fixed_bytes(array: pa.Array, size: int) -> tuple[pa.Array, Mask]:
    """A pa.BinaryArray of `size` bytes each, of a decimal array without nulls, and which numbers
    need more bytes than that: theirs are cut."""
    big = _big_endian(array)
    width = big.shape[1]
    too_wide = width - _first_kept(big) > size
    out = np.empty((len(big), size), np.uint8)
    kept = min(size, width)
    out[:, size - kept :] = big[:, width - kept :]
    out[:, : size - kept] = _signs(big)[:, None]
    offsets = (np.arange(len(big) + 1) * size).astype(np.int32)
    return binary_array(offsets, pa.py_buffer(out)), too_wide


def _big_endian(array: pa.Array) -> Bytes:
    width = array.type.byte_width
    data = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return data.reshape(len(array), width)[:, ::-1]


def _signs(big: Bytes) -> Bytes:
    """0 or 255: the byte that extends each number to the left."""
    return np.where(big[:, 0] >= 0x80, np.uint8(0xFF), np.uint8(0))


def _first_kept(big: Bytes) -> Ints:
    """The place of the first byte that each number needs."""
    differs = big != _signs(big)[:, None]
    width = big.shape[1]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
    # The first byte that is kept must show the sign.
    at = np.minimum(first, width - 1)
    shown = big[np.arange(len(big)), at] >= 0x80
    negative = big[:, 0] >= 0x80
    hides_sign = (first == width) | (shown != negative)
    kept: Ints = np.maximum(first - hides_sign, 0)
    return kept
