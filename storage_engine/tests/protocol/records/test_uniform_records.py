"""Rows that differ in their bytes alone become the same batches as any others, in less time
(R-LOG6, R-CLI1)."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage_engine.protocol.records import record_encoder
from storage_engine.protocol.records.arrow_binary import BinaryValues
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.records.uniform_records import UniformColumn, UniformRows
from storage_engine.tests.protocol.naive_codec import NaiveRecord, decode_batch
from storage_engine.tests.sampling import examples

SIZES = st.integers(-1, 80) | st.sampled_from([8170, 8180, 8190, 8191, 8192])
"""-1: all are null."""


def column(size: int, count: int, seed: int) -> pa.Array:
    if size < 0:
        return pa.nulls(count, pa.binary())
    content = np.random.default_rng(seed).bytes(size * count)
    return pa.array(
        [content[size * row : size * (row + 1)] for row in range(count)], type=pa.binary()
    )


def both_ways(values, keys=None, headers=None, timestamps=None, **options):
    """The batches, and what they are the general way; and how many went the other."""
    options = {"now_ms": 1_000, **options}
    with (
        patch.object(record_encoder, "LARGEST_UNIFORM_PAYLOAD", 1 << 20),
        patch.object(UniformRows, "encode", autospec=True, side_effect=UniformRows.encode) as fast,
    ):
        found = encode_batches(values, keys, headers, timestamps, **options)
    with patch.object(record_encoder, "_uniform", return_value=None):
        general = encode_batches(values, keys, headers, timestamps, **options)
    assert [bytes(batch.data) for batch in found] == [bytes(batch.data) for batch in general]
    assert [batch.record_count for batch in found] == [batch.record_count for batch in general]
    return found, fast.call_count


@settings(deadline=None, max_examples=examples(60))
@given(
    SIZES,
    SIZES,
    st.integers(1, 150),
    st.sampled_from([1, 300, 20_000, 1 << 20]),
    st.sampled_from(["none", "lz4"]),
    st.none() | st.integers(-1, 1 << 45),
    st.integers(0, 1 << 30),
)
@example(100, -1, 64, 1 << 20, "none", None, 0)
@example(0, 0, 65, 1 << 20, "none", 7, 0)
@example(-1, -1, 130, 1 << 20, "none", None, 0)
def test_the_bytes_are_those_of_the_general_way(
    value_size, key_size, count, batch_bytes, compression, timestamp, seed
):
    values, keys = column(value_size, count, seed), column(key_size, count, seed + 1)
    timestamps = None if timestamp is None else pa.array([timestamp] * count, pa.int64())
    batches, _ = both_ways(
        values,
        keys,
        timestamps=timestamps,
        batch_bytes=batch_bytes,
        compression=compression,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0x7FFFFFF0,
    )
    expected = [
        NaiveRecord(row, 1_000 if timestamp is None else timestamp, key, value, [])
        for row, (key, value) in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    ]
    found: list[NaiveRecord] = []
    for batch in batches:
        for record in decode_batch(bytes(batch.data)):
            found.append(replace(record, offset=len(found)))
    assert found == expected


@pytest.mark.parametrize("size", [52, 53, 54, 55, 56, 57, 58, 62, 63, 64, 65, 4095, 4096])
@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193])
def test_every_border_of_a_varint_is_met(size, count):
    """The varints are the value's length, the record's length, and the offset delta."""
    if size * count > 1 << 20:
        count = 64 + count % 64
    batches, fast = both_ways(column(size, count, 0), batch_bytes=1 << 22)
    assert (len(batches), fast) == (1, 1)


def test_a_batch_of_a_million_records_has_deltas_of_four_bytes():
    count = (1 << 20) + 3
    empty = pa.array([b""], pa.binary()).take(pa.array(np.zeros(count, np.int32)))
    batches, fast = both_ways(empty, batch_bytes=1 << 30)
    assert (len(batches), fast) == (1, 1)


ROWS = [b"%030d" % number for number in range(200)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(ROWS, pa.binary()).slice(7, 100),
        pa.array(ROWS, pa.large_binary()).slice(3),
        pa.array(ROWS, pa.binary(30)).slice(1, 90),
        pa.array([row.decode() for row in ROWS], pa.string()),
        pa.array([row.decode() for row in ROWS], pa.string_view()),
        pa.array(ROWS, pa.binary()).dictionary_encode(),
        pa.chunked_array([ROWS[:50], [], ROWS[50:]], pa.binary()).slice(20),
    ],
    ids=lambda values: str(values.type) + "/" + type(values).__name__,
)
def test_columns_of_every_kind_are_taken(values):
    plain = [row if isinstance(row, bytes) else row.encode() for row in values.to_pylist()]
    batches, fast = both_ways(values, batch_bytes=3_000)
    assert fast == len(batches) > 1
    found = [record.value for batch in batches for record in decode_batch(bytes(batch.data))]
    assert found == plain


@pytest.mark.parametrize(
    "columns",
    [
        {"values": [b"a", None] * 20},
        {"values": [b"", None] * 20},
        {"values": [b"a", b"bc"] * 20},
        {"values": [b"a"] * 40, "keys": [None] * 39 + [b"a"]},
        {"values": [b"a"] * 40, "timestamps": [1] * 39 + [2]},
        {"values": [b"a"] * 40, "headers": [[("name", b"")]] + [[]] * 39},
    ],
)
def test_rows_that_differ_in_more_than_bytes_go_the_general_way(columns):
    headers = columns.get("headers")
    batches, fast = both_ways(
        pa.array(columns["values"], pa.binary()),
        pa.array(columns["keys"], pa.binary()) if "keys" in columns else None,
        None if headers is None else pa.array(headers, HEADERS_TYPE),
        pa.array(columns["timestamps"], pa.int64()) if "timestamps" in columns else None,
    )
    assert (len(batches), fast) == (1, 0)


def test_values_too_large_for_an_item_are_left_to_the_general_way():
    """Which says that they are too large for a batch."""
    lengths = np.array([1 << 31])
    huge = BinaryValues(lengths=lengths, offsets=np.array([0, 1 << 31]), data=pa.py_buffer(b""))
    assert UniformColumn.of(huge, record_encoder.LARGEST_UNIFORM_PAYLOAD) is None


def test_batches_can_be_written_to_and_are_whole():
    (batch,) = encode_batches(column(100, 1000, 0))
    assert not batch.data.readonly
    assert [header.size_in_bytes for _, header in iter_headers(batch.data)] == [len(batch)]
