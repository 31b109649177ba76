"""Groups of records made into batches, and their owners told.

Rule: vectorised: Python per record only to set its future.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from storage_engine.client.producer.accumulator import RecordGroup
from storage_engine.client.producer.record_future import resolve
from storage_engine.core.errors import HeadraceError

if TYPE_CHECKING:
    from storage_engine.protocol.records.records import EncodedBatch

_ONE_BATCH = 1 << 30
"""A group has been kept to the batch size already."""


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    """-1 where no broker told it: with acks=0, or when an old repetition was recognised."""


def encode_group(group: RecordGroup[Any], compression: str) -> "EncodedBatch":
    """The one batch that the group makes."""
    import pyarrow as pa

    from storage_engine.protocol.records.records import HEADERS_TYPE, encode_batches

    headers = None
    if any(group.headers):
        rows = [[{"key": name, "value": value} for name, value in row] for row in group.headers]
        headers = pa.array(rows, HEADERS_TYPE)
    keyless = all(key is None for key in group.keys)
    (batch,) = encode_batches(
        pa.array(group.values, pa.binary()),
        None if keyless else pa.array(group.keys, pa.binary()),
        headers,
        pa.array(group.timestamps, pa.int64()),
        compression=compression,
        batch_bytes=_ONE_BATCH,
    )
    return batch


def tell(group: RecordGroup[Any], base_offset: int, error: HeadraceError | None) -> None:
    """Resolve the futures of the group's records, in their order."""
    if group.encoded is not None:
        group.waiters[0].settled(group, base_offset, error)
    elif error is not None:
        resolve(group.waiters, error)
    else:
        topic, partition = group.tp
        count = len(group.waiters)
        offsets = range(base_offset, base_offset + count) if base_offset >= 0 else [-1] * count
        resolve(group.waiters, [RecordMetadata(topic, partition, offset) for offset in offsets])
