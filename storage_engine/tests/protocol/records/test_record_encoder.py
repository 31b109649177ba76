"""Rows become batches: their size, their times, their sequence, their compression."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import InvalidRecordError, UnsupportedCompressionError
from storage_engine.protocol.records.record_batch import (
    Codec,
    crc_matches,
    iter_headers,
    patch_producer,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches, iter_encoded
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.protocol.naive_codec import decode_batch
from storage_engine.tests.protocol.records.made_records import (
    NOW,
    ROWS,
    decoded_records,
    one_batch,
    records_of,
    values_of,
)


def test_zero_rows_make_no_batch():
    assert encode_batches(pa.array([], pa.binary())) == []


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(InvalidRecordError, match="keys has 1 rows, values has 2"):
        encode_batches(pa.array([b"a", b"b"]), pa.array([b"k"]))


def test_sliced_arrays_give_their_slice():
    rows = 300
    values = pa.array([b"v%d" % i if i % 7 else None for i in range(rows)])
    keys = pa.array([b"k%d" % i if i % 5 else None for i in range(rows)])
    headers = pa.array(
        [[(f"h{i}", b"x" * (i % 3))] if i % 3 else None for i in range(rows)], HEADERS_TYPE
    )
    timestamps = pa.array([NOW + i for i in range(rows)])
    cut = slice(101, 250)
    batches = encode_batches(
        values[cut], keys[cut], headers[cut], timestamps[cut], batch_bytes=1000
    )
    assert len(batches) > 1
    decoded = decode_batches([batch.data for batch in batches], include_headers=True)
    assert decoded.values.equals(values[cut])
    assert decoded.keys.equals(keys[cut])
    assert decoded.headers.to_pylist() == headers[cut].to_pylist()
    assert decoded.timestamps_ms.equals(timestamps[cut])


def test_values_of_many_sizes_up_to_megabytes_come_back():
    sizes = [0, 1, 50, 57, 58, 63, 64, 127, 128, 8191, 8192, 70_000, 3 << 20, 1_048_576, 5]
    values = pa.array([bytes([i]) * size for i, size in enumerate(sizes)])
    batches = encode_batches(values, now_ms=NOW)
    assert len(batches) > 1
    decoded = decode_batches([batch.data for batch in batches])
    assert decoded.values.equals(values)


def test_timestamps_may_run_backwards_and_be_missing():
    timestamps = pa.array([NOW, NOW - 10**9, None, NOW + 10**9, -1])
    batch = one_batch(pa.array([b"v"] * 5), timestamps_ms=timestamps)
    header = read_header(batch.data)
    assert header.base_timestamp == NOW
    assert header.max_timestamp == NOW + 10**9
    decoded = decode_batches(batch.data)
    assert decoded.timestamps_ms.to_pylist() == [NOW, NOW - 10**9, NOW, NOW + 10**9, -1]
    assert decoded.timestamp_types.to_pylist() == [0] * 5


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_of_every_unit_are_milliseconds_in_the_log(unit):
    timestamps = pa.array([NOW - NOW % 1000], pa.timestamp("ms", "UTC")).cast(
        pa.timestamp(unit, "UTC")
    )
    decoded = decode_batches(one_batch(pa.array([b"v"]), timestamps_ms=timestamps).data)
    assert decoded.timestamps_ms.to_pylist() == [NOW - NOW % 1000]


def test_each_batch_counts_time_from_its_first_row():
    timestamps = pa.array([NOW + 1000 * i for i in range(10)])
    batches = encode_batches(pa.array([b"v" * 100] * 10), None, None, timestamps, batch_bytes=300)
    row = 0
    for batch in batches:
        header = read_header(batch.data)
        assert header.base_timestamp == NOW + 1000 * row
        row += batch.record_count
        assert header.max_timestamp == NOW + 1000 * (row - 1)


@pytest.mark.parametrize("codec", Codec)
def test_batches_pass_the_checks_of_a_leader(codec):
    values = pa.array([b"value %d" % i for i in range(5000)])
    batches = encode_batches(values, compression=codec.name.lower(), batch_bytes=10_000)
    assert len(batches) > 5
    for batch in batches:
        ((_, header),) = validate_for_append(batch.data, max_message_bytes=20_000)
        assert header.records_count == batch.record_count
        assert header.compression == codec
    assert values_of([batch.data for batch in batches]) == values.to_pylist()


@pytest.mark.parametrize("batch_bytes", [200, 1000, 16_384, 1 << 20])
def test_batches_keep_to_their_size_and_use_it(batch_bytes):
    sizes = np.random.default_rng(3).integers(0, 100, 40_000)
    values = pa.array([b"x" * int(size) for size in sizes])
    batches = encode_batches(values, batch_bytes=batch_bytes, now_ms=NOW)
    assert max(len(batch) for batch in batches) <= batch_bytes
    total = sum(len(batch) for batch in batches)
    assert len(batches) <= 1.5 * total / batch_bytes + 1
    assert sum(batch.record_count for batch in batches) == len(values)


@pytest.mark.parametrize("codec", Codec)
def test_batch_that_compression_would_enlarge_goes_uncompressed(codec):
    """Else a full batch of random bytes would exceed max.message.bytes by the codec's framing."""
    values = pa.array([np.random.default_rng(1).bytes(50_000)])
    batch = one_batch(values, compression=codec.name.lower())
    assert read_header(batch.data).compression == Codec.NONE
    assert values_of(batch.data) == values.to_pylist()


def test_record_larger_than_a_batch_gets_a_batch_of_its_own():
    batches = encode_batches(pa.array([b"a", b"x" * 5000, b"b", b"c"]), batch_bytes=100)
    assert [batch.record_count for batch in batches] == [1, 1, 2]


def test_first_batch_is_there_before_the_last_is_made():
    batches = iter_encoded(pa.array([b"x" * 1000] * 10), batch_bytes=1, now_ms=NOW)
    assert next(batches).record_count == 1


def test_sequence_goes_on_from_batch_to_batch_and_wraps():
    batches = encode_batches(
        pa.array([b"x" * 90] * 6),
        batch_bytes=300,
        producer_id=9,
        producer_epoch=1,
        base_sequence=0x7FFFFFFF - 1,
        transactional=True,
    )
    headers = [read_header(batch.data) for batch in batches]
    assert [header.base_sequence for header in headers] == [0x7FFFFFFE, 0, 2]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 1)}
    assert all(header.is_transactional for header in headers)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_producer_can_be_stamped_later(compression):
    batch = one_batch(pa.array([b"v"]), compression=compression)
    patch_producer(batch.data, 0, producer_id=12, producer_epoch=3, base_sequence=45)
    header = read_header(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 45)
    assert crc_matches(batch.data, 0, len(batch))
    assert decode_batch(bytes(batch.data))[0].value == b"v"


def test_small_batches_do_not_share_bytes():
    """They are encoded in one pass; stamping one must leave its neighbours alone."""
    batches = encode_batches(pa.array([b"a", b"b", b"c"]), batch_bytes=1)
    for index, batch in enumerate(batches):
        patch_producer(batch.data, 0, producer_id=index, producer_epoch=0, base_sequence=0)
    assert [decode_batch(bytes(batch.data))[0].value for batch in batches] == [b"a", b"b", b"c"]


def test_unknown_compression_is_refused():
    with pytest.raises(UnsupportedCompressionError, match="'brotli' is unknown"):
        encode_batches(pa.array([b"v"]), compression="brotli")


def patched(batches) -> bytes:
    """The batches with the base offsets that a log would give them."""
    blob = bytearray()
    offset = 0
    for batch in batches:
        data = bytearray(batch.data)
        data[:8] = offset.to_bytes(8, "big")
        offset += batch.record_count
        blob += data
    return bytes(blob)


@given(ROWS, st.sampled_from(list(Codec)), st.sampled_from([1, 300, 2000, 1 << 20]))
@settings(deadline=None)
def test_the_naive_decoder_reads_what_the_encoder_writes(rows, codec, batch_bytes):
    keys, values, headers, timestamps = zip(*rows, strict=True)
    batches = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(headers, HEADERS_TYPE),
        pa.array(timestamps, pa.int64()),
        compression=codec.name.lower(),
        batch_bytes=batch_bytes,
    )
    blob = patched(batches)
    found = []
    for position, header in iter_headers(blob):
        assert header.last_offset_delta == header.records_count - 1
        found += decode_batch(blob[position : position + header.size_in_bytes])
    assert found == records_of(rows, range(len(rows)))
    assert decoded_records(blob) == found
