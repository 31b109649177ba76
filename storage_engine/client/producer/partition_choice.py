"""Chooses the partition of a record when the caller does not.

The same key goes where Kafka's own producers send it (`partitioner` has the same hash for whole
columns); records without a key go to one partition until a batch is full, then to another. Source:
KIP-480, KIP-794; Kafka's DefaultPartitioner.
"""

import random
import struct
from collections.abc import Callable, Sequence

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's murmur2, unsigned."""
    length = len(key)
    count = length >> 2
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{count}I", key):
        word = word * _M & _MASK
        word ^= word >> 24
        hashed = (hashed * _M & _MASK) ^ (word * _M & _MASK)
    if length & 3:
        hashed = (hashed ^ int.from_bytes(key[count << 2 :], "little")) * _M & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition to which Kafka's producers send this key."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyPartition:
    """The partition that records of one topic without a key go to."""

    __slots__ = ("_bytes_left", "_random", "_switch_bytes", "partition")

    def __init__(self, switch_bytes: int, rng: random.Random) -> None:
        self._switch_bytes = switch_bytes
        self._random = rng
        self._bytes_left = 0
        self.partition = -1

    def next(self, size: int, available: Sequence[int]) -> int:
        """The partition for a record of `size` bytes; `available` are the partitions with a
        leader."""
        if self._bytes_left <= 0 or self.partition not in available:
            others = [each for each in available if each != self.partition] or available
            self.partition = self._random.choice(others)
            self._bytes_left = self._switch_bytes
        self._bytes_left -= size
        return self.partition
