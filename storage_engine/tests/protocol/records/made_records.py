"""Records and batches that tests make, and the rows of batches in a plain form."""

from collections.abc import Sequence

from hypothesis import strategies as st

from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.protocol.naive_codec import NaiveRecord

# Bytes that look like lengths and attributes, so that false record starts abound.
TRICKY = st.sampled_from(
    [b"", b"\x00", b"\x0c\x00", b"\x80\x01\x00", b"\x0e\x00\x00\x00\x01\x01\x00"]
)

BLOB = st.one_of(
    st.binary(max_size=12),
    st.lists(TRICKY, max_size=8).map(b"".join),
    st.integers(0, 400).map(bytes),
    st.integers(60, 70).map(lambda size: b"x" * size),
)

NULLABLE = st.none() | BLOB
HEADERS = st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=4)
TIMESTAMP = st.integers(-1, 1 << 45) | st.integers(1_700_000_000_000, 1_700_000_010_000)
RECORD = st.tuples(NULLABLE, NULLABLE, HEADERS, TIMESTAMP)
ROWS = st.lists(RECORD, min_size=1, max_size=150)


def records_of(rows: Sequence[tuple], offsets: Sequence[int]) -> list[NaiveRecord]:
    return [
        NaiveRecord(offset, timestamp, key, value, headers)
        for (key, value, headers, timestamp), offset in zip(rows, offsets, strict=True)
    ]


def decoded_records(blob, **options) -> list[NaiveRecord]:
    decoded = decode_batches(blob, include_headers=True, **options)
    decoded.headers.validate(full=True)
    decoded.values.validate(full=True)
    decoded.keys.validate(full=True)
    columns = (
        decoded.offsets,
        decoded.timestamps_ms,
        decoded.keys,
        decoded.values,
        decoded.headers,
    )
    return [
        NaiveRecord(
            offset,
            timestamp,
            key,
            value,
            [(header["key"], header["value"]) for header in headers or []],
        )
        for offset, timestamp, key, value, headers in zip(
            *(column.to_pylist() for column in columns), strict=True
        )
    ]


NOW = 1_700_000_000_000


def one_batch(values, **options):
    (batch,) = encode_batches(values, now_ms=NOW, **options)
    return batch


def values_of(blob, **options):
    return decode_batches(blob, **options).values.to_pylist()
