"""One batch of some rows, and the rows of batches."""

from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches

NOW = 1_700_000_000_000


def one_batch(values, **options):
    (batch,) = encode_batches(values, now_ms=NOW, **options)
    return batch


def values_of(blob, **options):
    return decode_batches(blob, **options).values.to_pylist()
