"""Rows to batches and back: the cases by name."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
from storage_engine.protocol.records.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    crc_matches,
    patch_producer,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_decoder import decode_batches, iter_decoded
from storage_engine.protocol.records.record_encoder import encode_batches, iter_encoded
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tests.protocol.naive_codec import NaiveRecord, decode_batch, encode_batch, wrap

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

NOW = 1_700_000_000_000


def one_batch(values, **options):
    (batch,) = encode_batches(values, now_ms=NOW, **options)
    return batch


def values_of(blob, **options):
    return decode_batches(blob, **options).values.to_pylist()


def test_zero_rows_make_no_batch():
    assert encode_batches(pa.array([], pa.binary())) == []


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


def test_null_and_empty_stay_apart():
    keys = pa.array([None, b"", b"k"], pa.binary())
    values = pa.array([b"", None, b"v"], pa.binary())
    decoded = decode_batches(one_batch(values, keys=keys).data)
    assert decoded.keys.to_pylist() == [None, b"", b"k"]
    assert decoded.values.to_pylist() == [b"", None, b"v"]


def test_column_of_nulls_is_a_column_of_tombstones():
    decoded = decode_batches(one_batch(pa.nulls(3), keys=pa.array([b"a", b"b", b"c"])).data)
    assert decoded.values.to_pylist() == [None] * 3
    assert decoded.values.type == pa.binary()


def test_null_slot_that_hides_bytes_is_written_as_null():
    """Arrow allows a null row to span bytes."""
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    values = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"abcd")]
    )
    assert values.to_pylist() == [None, b"cd"]
    assert values_of(one_batch(values).data) == [None, b"cd"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_all_binary_and_string_types_are_written(kind):
    column = pa.array(["one", None, "", "three and more than twelve bytes"], pa.string()).cast(kind)
    decoded = decode_batches(one_batch(column, keys=column).data)
    expected = [b"one", None, b"", b"three and more than twelve bytes"]
    assert decoded.values.to_pylist() == expected
    assert decoded.keys.to_pylist() == expected


def test_binary_of_fixed_size_is_written():
    assert values_of(one_batch(pa.array([b"abc", None], pa.binary(3))).data) == [b"abc", None]


def test_times_beyond_sparks_are_its_last_and_first():
    timestamps = pa.array([(1 << 63) - 1, -(1 << 62)])
    decoded = decode_batches(one_batch(pa.array([b"a", b"b"]), timestamps_ms=timestamps).data)
    assert decoded.timestamps_ms.equals(timestamps)
    limit = ((1 << 63) - 1) // 1000 * 1000
    assert decoded.timestamps.cast(pa.int64()).to_pylist() == [limit, -limit]


def test_other_types_are_refused_by_name():
    with pytest.raises(InvalidRecordError, match="the value column has type int64: cast it"):
        encode_batches(pa.array([1]))
    with pytest.raises(InvalidRecordError, match="the key column has type double"):
        encode_batches(pa.array([b"v"]), pa.array([1.5]))
    with pytest.raises(InvalidRecordError, match="the headers column has type string"):
        encode_batches(pa.array([b"v"]), headers=pa.array(["h"]))
    with pytest.raises(InvalidRecordError, match="the timestamp column has type string"):
        encode_batches(pa.array([b"v"]), timestamps_ms=pa.array(["now"]))


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


def test_chunked_arrays_are_written_as_one():
    chunked = pa.chunked_array([[b"a", b"b"], [], [None], [b"c"]], pa.binary())
    single = pa.chunked_array([[b"1", b"2", b"3", b"4"]], pa.binary())
    decoded = decode_batches(one_batch(chunked, keys=single).data)
    assert decoded.values.to_pylist() == [b"a", b"b", None, b"c"]
    assert decoded.keys.to_pylist() == [b"1", b"2", b"3", b"4"]


def test_values_of_many_sizes_up_to_megabytes_come_back():
    sizes = [0, 1, 50, 57, 58, 63, 64, 127, 128, 8191, 8192, 70_000, 3 << 20, 1_048_576, 5]
    values = pa.array([bytes([i]) * size for i, size in enumerate(sizes)])
    batches = encode_batches(values, now_ms=NOW)
    assert len(batches) > 1
    decoded = decode_batches([batch.data for batch in batches])
    assert decoded.values.equals(values)


def test_headers_keep_order_repetition_nulls_and_empties():
    headers = pa.array(
        [
            [("a", b"1"), ("a", b"2"), ("", b""), ("z", None), ("ü", b"\xff\x00")],
            [],
            None,
            [("b", b"x" * 300)],
        ],
        HEADERS_TYPE,
    )
    decoded = decode_batches(
        one_batch(pa.array([b"v"] * 4), headers=headers).data, include_headers=True
    )
    assert decoded.headers.to_pylist() == [
        headers[0].as_py(),
        None,
        None,
        [{"key": "b", "value": b"x" * 300}],
    ]


def test_headers_are_left_out_unless_asked_for():
    headers = pa.array([[("a", b"1")]], HEADERS_TYPE)
    assert decode_batches(one_batch(pa.array([b"v"]), headers=headers).data).headers is None


def test_headers_of_large_list_and_binary_keys_are_written():
    kind = pa.large_list(pa.struct([("key", pa.large_binary()), ("value", pa.string())]))
    batch = one_batch(pa.array([b"v"]), headers=pa.array([[(b"k", "w")]], kind))
    decoded = decode_batches(batch.data, include_headers=True)
    assert decoded.headers.to_pylist() == [[{"key": "k", "value": b"w"}]]


def test_many_headers_on_few_records_are_read_like_few_on_many():
    rich = [(f"k{i}", b"v%d" % i) for i in range(500)]
    headers = pa.array([rich, None, rich[:3]] + [[("x", None)]] * 40, HEADERS_TYPE)
    batch = one_batch(pa.array([b"v"] * len(headers)), headers=headers)
    decoded = decode_batches(batch.data, include_headers=True)
    assert decoded.headers.to_pylist() == headers.to_pylist()


def test_header_with_a_null_key_is_refused():
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS_TYPE)
    with pytest.raises(InvalidRecordError, match="null key"):
        encode_batches(pa.array([b"v"]), headers=headers)


def test_header_key_that_is_not_utf8_is_read_with_replacement_characters():
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xffk" + b"\x01"
    blob = wrap(bytes([2 * len(body)]) + body, count=1)
    decoded = decode_batches(blob, include_headers=True)
    assert decoded.headers.to_pylist() == [[{"key": "\ufffdk", "value": None}]]


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


def test_log_append_time_is_the_time_of_every_record():
    records = [NaiveRecord(i, NOW + i, None, b"v") for i in range(3)]
    blob = encode_batch(records, attributes=8, max_timestamp=NOW + 99)
    decoded = decode_batches(blob + encode_batch([NaiveRecord(3, NOW, None, b"w")]))
    assert decoded.timestamps_ms.to_pylist() == [NOW + 99] * 3 + [NOW]
    assert decoded.timestamp_types.to_pylist() == [1, 1, 1, 0]


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


def test_broker_side_header_module_loads_neither_numpy_nor_pyarrow():
    program = (
        "import sys, storage_engine.protocol.records.record_batch;"
        "import storage_engine.protocol.records.compression;"
        "print([name for name in ('numpy', 'pyarrow', 'kafka') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_codec_is_imported_without_pandas():
    module = "storage_engine.protocol.records.record_decoder"
    program = f"import sys, {module}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
