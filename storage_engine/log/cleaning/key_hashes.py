"""128-bit hashes of keys, for many at once. No two keys are ever taken for one.

Four multilinear hashes of 32 bits, each with random coefficients of its own:

    h = (c0 + c1 * length + c2 * word1 + c3 * word2 + …  mod 2^64) >> 32

This family is strongly universal: for any two different keys the chance of equal hashes, taken over
the coefficients, is 2^-32 for one and 2^-128 for four. Nothing more is promised: with a draw that
is bad for it, a bit may be the same in most hashes of similar keys. The coefficients are drawn anew
for every pass, so that nobody can choose keys that collide. Long keys are few, and hashed by
BLAKE2b.

The newest offset of each key of a pass, in bounded memory. It holds no more keys than it was
made for, but for those of one last piece.

Keys are held as their 128-bit hashes in sorted columns; what is added waits unsorted until there is
as much of it as of the rest, so that sorting costs little however many keys there are.

Source: R-LOG10, Lemire and Kaser, "Strongly universal string hashing is fast" (2014).
"""

import hashlib
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.protocol.records.arrow_binary import binary_array, join, writable_bytes
from storage_engine.protocol.records.varints import Ints

Words = npt.NDArray[np.uint64]

LONG_KEY_BYTES = 4096
"""From this length on BLAKE2b is cheaper for each key."""

SLICE_BYTES = 1 << 20
"""The bytes of keys that are hashed in one pass: the columns with an entry per word take ten times
that.
"""

_WORD_BYTES = 4
_LANES = 4
_HALF = np.uint64(32)
_SEED_BYTES = 16
_PADDING = pa.array([b"", bytes(3), bytes(2), bytes(1)], pa.binary())
"""The bytes that fill the last word, by length modulo 4."""


class KeyHashes(NamedTuple):
    high: Words
    low: Words


class KeyHasher:
    """Hashes with one choice of coefficients."""

    def __init__(self, seed: bytes | None = None) -> None:
        """`seed`: 16 bytes that determine the choice; None for a random one."""
        self._seed = secrets.token_bytes(_SEED_BYTES) if seed is None else seed
        generator = np.random.default_rng(int.from_bytes(self._seed))
        # These are c0, the coefficient of the length, and one for each word of the longest key
        # hashed this way.
        count = 2 + LONG_KEY_BYTES // _WORD_BYTES
        self._coefficients = generator.integers(0, 1 << 64, (_LANES, count), dtype=np.uint64)

    def hash(self, keys: pa.Array) -> KeyHashes:
        """Return the hashes of a pa.BinaryArray; a null counts as an empty key."""
        if keys.null_count:
            keys = pc.fill_null(keys, b"")
        lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
        is_long = lengths >= LONG_KEY_BYTES
        long_rows = np.flatnonzero(is_long)
        long_keys = keys.take(pa.array(long_rows)) if len(long_rows) else keys
        if len(long_rows):
            keys = pc.if_else(pa.array(is_long), b"", keys)
            lengths[is_long] = 0
        hashes = KeyHashes(np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64))
        for start, stop in _slices(lengths):
            high, low = self._hash_short(keys.slice(start, stop - start), lengths[start:stop])
            hashes.high[start:stop] = high
            hashes.low[start:stop] = low
        for number, row in enumerate(long_rows.tolist()):
            hashes.high[row], hashes.low[row] = self._hash_long(long_keys[number].as_buffer())
        return hashes

    def _hash_short(self, keys: pa.Array, lengths: Ints) -> KeyHashes:
        count = len(keys)
        length_words = binary_array(
            np.arange(0, _WORD_BYTES * (count + 1), _WORD_BYTES, dtype=np.int32),
            pa.py_buffer(lengths.astype(np.uint32)),
        )
        padding = _PADDING.take(pa.array(lengths % _WORD_BYTES))
        data, ends = writable_bytes(join(length_words, keys, padding))
        words = np.frombuffer(data, np.uint32).astype(np.uint64)
        firsts = ends[:-1].astype(np.int64) // _WORD_BYTES
        sizes = np.diff(ends) // _WORD_BYTES
        number_in_key = np.arange(len(words)) - np.repeat(firsts, sizes)
        lanes = []
        for coefficients in self._coefficients:
            products = words * coefficients[1:][number_in_key]
            lanes.append((np.add.reduceat(products, firsts) + coefficients[0]) >> _HALF)
        return KeyHashes((lanes[0] << _HALF) | lanes[1], (lanes[2] << _HALF) | lanes[3])

    def _hash_long(self, key: pa.Buffer) -> tuple[int, int]:
        digest = hashlib.blake2b(key, digest_size=16, key=self._seed).digest()
        return int.from_bytes(digest[:8]), int.from_bytes(digest[8:])


def _slices(lengths: Ints) -> Iterator[tuple[int, int]]:
    """Yield runs of rows with about SLICE_BYTES of keys each."""
    ends = np.cumsum(lengths + _WORD_BYTES)
    start = done = 0
    while start < len(lengths):
        stop = max(start + 1, int(np.searchsorted(ends, done + SLICE_BYTES, side="right")))
        yield start, stop
        start, done = stop, int(ends[stop - 1])


ENTRY_BYTES = 96
"""The memory per key: 24 bytes for itself, and the same again a few times while columns are
merged."""

UNKNOWN = -1

_LEAST_PENDING = 1 << 14


class NewestOffsets:
    """Invariant: the columns are sorted by hash, and no hash is there twice."""

    def __init__(self, max_bytes: int) -> None:
        self._capacity = max(1, max_bytes // ENTRY_BYTES)
        self._high: Words = np.empty(0, np.uint64)
        self._low: Words = np.empty(0, np.uint64)
        self._offsets: Ints = np.empty(0, np.int64)
        self._pending: list[tuple[KeyHashes, Ints]] = []
        self._pending_count = 0

    def __len__(self) -> int:
        self._merge()
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        if len(self._offsets) + self._pending_count >= self._capacity:
            self._merge()
        return len(self._offsets) >= self._capacity

    def add(self, hashes: KeyHashes, offsets: Ints) -> None:
        """Records offsets; the largest of each key counts."""
        self._pending.append((hashes, offsets))
        self._pending_count += len(offsets)
        if self._pending_count > max(_LEAST_PENDING, len(self._offsets)):
            self._merge()

    def newest(self, hashes: KeyHashes) -> Ints:
        """Return the largest offset of each key; UNKNOWN for keys that were not added."""
        self._merge()
        result = np.full(len(hashes.high), UNKNOWN, np.int64)
        places = np.searchsorted(self._high, hashes.high)
        rows = np.arange(len(result))
        # The upper halves of two hashes may be equal: then the next place is checked, too.
        while len(rows):
            rows = rows[places[rows] < len(self._high)]
            rows = rows[self._high[places[rows]] == hashes.high[rows]]
            same = self._low[places[rows]] == hashes.low[rows]
            result[rows[same]] = self._offsets[places[rows[same]]]
            rows = rows[~same]
            places[rows] += 1
        return result

    def _merge(self) -> None:
        if not self._pending:
            return
        high = np.concatenate([self._high, *(hashes.high for hashes, _ in self._pending)])
        low = np.concatenate([self._low, *(hashes.low for hashes, _ in self._pending)])
        offsets = np.concatenate([self._offsets, *(offsets for _, offsets in self._pending)])
        self._pending, self._pending_count = [], 0
        order = np.lexsort((offsets, low, high))
        high, low, offsets = high[order], low[order], offsets[order]
        is_newest = np.ones(len(order), np.bool_)
        is_newest[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        self._high, self._low = high[is_newest], low[is_newest]
        self._offsets = offsets[is_newest]
