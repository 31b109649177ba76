"""The transaction coordinator's log as record batches: one step's records in one batch, and the
whole log back as its newest record of each key. Its one rule: reading in pieces, in order, is the
same as reading at once, whether compaction has been there or not.

A tombstone is a null value. Keys of later versions are skipped. Source: KIP-98.
"""

from collections.abc import Iterable, MutableMapping

import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transaction_state import StateKey, StateRecord
from storage_engine.protocol.record_batch import BytesLike
from storage_engine.protocol.record_decoder import iter_decoded
from storage_engine.protocol.record_encoder import LARGEST_BATCH_BYTES, encode_batches
from storage_engine.protocol.transaction_records import (
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)

Entry = tuple[StateKey, StateRecord | None]
"""A key with its new record; None: a tombstone."""


def encode_entries(entries: Iterable[Entry], *, now_ms: int) -> memoryview:
    """One batch, so that all of them are appended or none; writable, at least one entry."""
    keys, values = [], []
    for key, record in entries:
        keys.append(encode_key(key))
        values.append(None if record is None else encode_record(record))
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        now_ms=now_ms,
        batch_bytes=LARGEST_BATCH_BYTES,
    )
    return batch.data


def replay(batches: BytesLike, content: MutableMapping[StateKey, StateRecord]) -> None:
    """Take up whole batches of the log into `content`; CorruptRecordError for what can't be
    read."""
    for records in iter_decoded([memoryview(batches)]):
        for raw_key, raw, offset in zip(
            records.keys.to_pylist(),
            records.values.to_pylist(),
            records.offsets.to_pylist(),
            strict=True,
        ):
            if raw_key is None:
                raise CorruptRecordError(
                    f"the record at offset {offset} of the transaction state log has no key"
                )
            key = decode_key(raw_key)
            if key is None:
                continue
            if raw is None:
                content.pop(key, None)
            else:
                content[key] = decode_record(key, raw)
