"""The values of the setting `partitioner`, with librdkafka's names: which hash of its key sends a
record to its partition, and which records are spread instead.

Source: librdkafka's CONFIGURATION.md and rd_kafka_msg_partitioner_*; Kafka's DefaultPartitioner.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.client.producer.partition_choice import murmur2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_POSITIVE = 0x7FFFFFFF

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_MASK = 0xFFFFFFFF


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
    """None: keys choose nothing."""
    spreads_null: bool
    """Whether a record without a key goes to any partition; else to that of an empty key."""
    spreads_empty: bool = False

    def partition_of(self, key: bytes | None, count: int) -> int | None:
        """None for any partition."""
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
