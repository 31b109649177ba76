"""A coordinator's records as record batches, and back. Its one rule: one step's records are one
batch, so that all of them are appended or none.

A tombstone is a null value. What a key and a value are is told by the records of each kind of
coordinator: `transaction_records`, `group_records`. Source: KIP-98.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.record_batch import BytesLike
from storage_engine.protocol.record_decoder import iter_decoded
from storage_engine.protocol.record_encoder import LARGEST_BATCH_BYTES, encode_batches

RawEntry = tuple[bytes, bytes | None]
"""Key and value; None: a tombstone."""


def encode_raw(entries: Iterable[RawEntry], *, now_ms: int) -> memoryview:
    """One batch; writable, at least one entry."""
    keys, values = zip(*entries, strict=True)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        now_ms=now_ms,
        batch_bytes=LARGEST_BATCH_BYTES,
    )
    return batch.data


def iter_raw(batches: BytesLike, log: str) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record in whole batches of a log, which `log` names.

    CorruptRecordError for what can't be read.
    """
    for records in iter_decoded([memoryview(batches)]):
        for key, value, offset in zip(
            records.keys.to_pylist(),
            records.values.to_pylist(),
            records.offsets.to_pylist(),
            strict=True,
        ):
            if key is None:
                raise CorruptRecordError(f"the record at offset {offset} of the {log} has no key")
            yield offset, key, value
