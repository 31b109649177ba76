"""Batches become rows: their types, the range that is wanted, what is skipped."""

import subprocess
import sys

import pyarrow as pa
import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from storage_engine.protocol.records.record_decoder import decode_batches, iter_decoded
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.protocol.naive_codec import NaiveRecord, encode_batch, wrap
from storage_engine.tests.protocol.records.made_records import NOW, one_batch, values_of

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
    ]
)


def test_no_bytes_make_no_rows():
    decoded = decode_batches(b"", include_headers=True)
    assert len(decoded) == 0
    assert decoded.headers.type == HEADERS_TYPE
    assert decoded.timestamps.type == pa.timestamp("us", tz="UTC")


def test_decoded_columns_have_the_types_of_the_schema():
    decoded = decode_batches(one_batch(pa.array([b"v"])).data, include_headers=True)
    columns = [
        decoded.keys,
        decoded.values,
        decoded.offsets,
        decoded.timestamps,
        decoded.timestamp_types,
        decoded.headers,
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    batch.validate(full=True)
    assert batch.to_pylist()[0]["timestamp"].timestamp() == NOW / 1000


def test_times_beyond_sparks_are_its_last_and_first():
    timestamps = pa.array([(1 << 63) - 1, -(1 << 62)])
    decoded = decode_batches(one_batch(pa.array([b"a", b"b"]), timestamps_ms=timestamps).data)
    assert decoded.timestamps_ms.equals(timestamps)
    limit = ((1 << 63) - 1) // 1000 * 1000
    assert decoded.timestamps.cast(pa.int64()).to_pylist() == [limit, -limit]


def test_log_append_time_is_the_time_of_every_record():
    records = [NaiveRecord(i, NOW + i, None, b"v") for i in range(3)]
    blob = encode_batch(records, attributes=8, max_timestamp=NOW + 99)
    decoded = decode_batches(blob + encode_batch([NaiveRecord(3, NOW, None, b"w")]))
    assert decoded.timestamps_ms.to_pylist() == [NOW + 99] * 3 + [NOW]
    assert decoded.timestamp_types.to_pylist() == [1, 1, 1, 0]


def test_offsets_of_a_compacted_log_keep_their_gaps():
    records = [NaiveRecord(offset, NOW, None, b"%d" % offset) for offset in (103, 107, 250)]
    decoded = decode_batches(encode_batch(records, base_offset=100, last_offset=400))
    assert decoded.offsets.to_pylist() == [103, 107, 250]


def test_range_wanted_is_half_open():
    records = [NaiveRecord(offset, NOW, None, b"%d" % offset) for offset in range(10, 20)]
    blob = encode_batch(records[:5]) + encode_batch(records[5:])
    assert values_of(blob, start_offset=13, end_offset=17) == [b"13", b"14", b"15", b"16"]
    assert values_of(blob, start_offset=15, end_offset=15) == []
    assert values_of(blob, start_offset=19) == [b"19"]
    assert values_of(blob, end_offset=11) == [b"10"]
    assert values_of(blob, start_offset=20) == []


def test_batches_outside_the_range_are_not_even_checked():
    intact = encode_batch([NaiveRecord(5, NOW, None, b"v")])
    damaged = bytearray(encode_batch([NaiveRecord(4, NOW, None, b"w")]))
    damaged[-2] ^= 1
    assert values_of(bytes(damaged) + intact, start_offset=5) == [b"v"]


def test_control_batches_are_never_rows():
    marker = encode_batch(
        [NaiveRecord(1, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")],
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
    )
    blob = encode_batch([NaiveRecord(0, NOW, None, b"a")]) + marker
    blob += encode_batch([NaiveRecord(2, NOW, None, b"b")])
    decoded = decode_batches(blob)
    assert decoded.values.to_pylist() == [b"a", b"b"]
    assert decoded.offsets.to_pylist() == [0, 2]


def test_empty_batches_that_compaction_leaves_are_skipped():
    empty = wrap(b"", count=0, base_offset=5, last_offset_delta=10)
    assert values_of(empty + encode_batch([NaiveRecord(16, NOW, None, b"v")])) == [b"v"]


def test_batch_cut_off_at_the_end_of_a_fetch_is_left_out():
    whole = encode_batch([NaiveRecord(0, NOW, None, b"v")])
    assert values_of(whole + whole[:-1]) == [b"v"]


def test_thousands_of_batches_of_one_record_are_read():
    blob = b"".join(
        encode_batch([NaiveRecord(i, NOW + i, b"k%d" % i, b"v%d" % i)]) for i in range(5000)
    )
    decoded = decode_batches(blob)
    assert decoded.values.to_pylist() == [b"v%d" % i for i in range(5000)]
    assert decoded.offsets.to_pylist() == list(range(5000))
    assert decoded.timestamps_ms.to_pylist() == [NOW + i for i in range(5000)]


def test_large_input_is_given_in_pieces():
    batches = encode_batches(pa.array([b"x" * 1000] * 3000), batch_bytes=100_000)
    pieces = list(iter_decoded([batch.data for batch in batches]))
    assert len(pieces) >= 2
    assert sum(map(len, pieces)) == 3000


def test_buffers_may_be_bytes_views_or_arrow_buffers():
    batch = one_batch(pa.array([b"v"]))
    data = bytes(batch.data)
    for buffer in (data, bytearray(data), memoryview(data), pa.py_buffer(data), batch.data):
        assert values_of(buffer) == [b"v"]
        assert values_of([buffer, buffer]) == [b"v", b"v"]


def test_record_attributes_and_needless_varint_bytes_are_tolerated():
    """No client writes them, but nothing forbids them: a plain walk reads such batches."""
    odd = b"\x14" + b"\x05" + b"\x00\x00\x01\x08abcd\x00"
    long_length = b"\x94\x00" + b"\x00" + b"\x00\x02\x01\x08efgh\x00"
    assert values_of(wrap(odd + long_length, count=2)) == [b"abcd", b"efgh"]


def test_wrong_crc_is_an_error_unless_crcs_are_not_checked():
    damaged = bytearray(encode_batch([NaiveRecord(77, NOW, None, b"v")]))
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecordError, match="batch at offset 77 is damaged: its CRC"):
        decode_batches(damaged)
    assert values_of(damaged, check_crcs=False) == [b"w"]


def test_the_codec_is_imported_without_pandas():
    module = "storage_engine.protocol.records.record_decoder"
    program = f"import sys, {module}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
