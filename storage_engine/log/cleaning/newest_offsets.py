"""The newest offset of each key of a pass, in bounded memory. It holds no more keys than it was
made for, but for those of one last piece.

Keys are held as their 128-bit hashes in sorted columns; what is added waits unsorted until there is
as much of it as of the rest, so that sorting costs little however many keys there are.
"""

import numpy as np

from storage_engine.log.cleaning.key_hashes import KeyHashes, Words
from storage_engine.protocol.records.varints import Ints

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
        """Return the number of keys."""
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
