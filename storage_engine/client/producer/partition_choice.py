"""Chooses the partition of a record when the caller does not.

The same key goes where Kafka's own producers send it (`partitioner` has the same hash for whole
columns); records without a key go to one partition until a batch is full, then to another. The
setting `partitioner` has librdkafka's names.

Source: KIP-480, KIP-794; Kafka's DefaultPartitioner; librdkafka's CONFIGURATION.md.
"""

import random
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


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


def _murmur2(key: bytes) -> int:
    return murmur2(key) & _POSITIVE


def fnv1a(key: bytes) -> int:
    """FNV-1a of 32 bits, as a signed number without its sign."""
    hashed = _FNV_OFFSET
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return (1 << 32) - hashed if hashed > _POSITIVE else hashed


class KeyPartitioner(NamedTuple):
    """How the keys of records choose partitions."""

    name: str
    hash_key: Callable[[bytes], int] | None
    """The hash of a key; None: keys do not choose partitions."""
    spreads_null: bool
    """Whether a record without a key goes to any partition; else to that of an empty key."""
    spreads_empty: bool = False

    def partition_of(self, key: bytes | None, count: int) -> int | None:
        """Return the partition of a key; None for any partition."""
        if self.hash_key is None or (key is None and self.spreads_null):
            return None
        if not key and self.spreads_empty:
            return None
        return self.hash_key(key or b"") % count

    def partitions_of(
        self, keys: "pa.Array", count: int, *, spread: int
    ) -> "npt.NDArray[np.int32]":
        """The partition of each row of a column of keys; `spread` for any partition."""
        import numpy as np
        import pyarrow as pa

        from storage_engine.client.producer.partitioner import partitions_for_keys

        if self.name == DEFAULT:
            return partitions_for_keys(keys, count, null_partition=spread)
        found = (self.partition_of(key, count) for key in keys.cast(pa.binary()).to_pylist())
        chosen = (spread if each is None else each for each in found)
        return np.fromiter(chosen, np.int32, len(keys))


DEFAULT = "murmur2_random"

KEY_PARTITIONERS: Mapping[str, KeyPartitioner] = {
    row.name: row
    for row in (
        KeyPartitioner("random", None, spreads_null=True),
        KeyPartitioner("consistent", zlib.crc32, spreads_null=False),
        KeyPartitioner("consistent_random", zlib.crc32, spreads_null=True, spreads_empty=True),
        KeyPartitioner("murmur2", _murmur2, spreads_null=False),
        KeyPartitioner(DEFAULT, _murmur2, spreads_null=True),
        KeyPartitioner("fnv1a", fnv1a, spreads_null=False),
        KeyPartitioner("fnv1a_random", fnv1a, spreads_null=True),
    )
}
