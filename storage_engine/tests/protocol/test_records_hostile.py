"""Bytes that lie. Whatever they are: a CorruptRecordError of one line, soon, or rows."""

import random
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, UnsupportedCompressionError
from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_chain import RecordRegions, find_records
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.protocol.naive_codec import (
    NaiveRecord,
    encode_batch,
    encode_record,
    varint,
    wrap,
)
from storage_engine.tests.sampling import examples

GOOD = NaiveRecord(0, 5, b"key", b"value", [("h", b"x")])


def rejected(blob, **options) -> str:
    with pytest.raises(CorruptRecordError) as failure:
        decode_batches(blob, include_headers=True, **options)
    text = str(failure.value)
    assert "\n" not in text
    return text


def record(body: bytes) -> bytes:
    return varint(len(body)) + body


def body(
    *,
    timestamp: bytes = b"\x00",
    offset: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
) -> bytes:
    return b"\x00" + timestamp + offset + key + value + headers


TOO_LONG = b"\xff\xff\xff\xff\xff\x01"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (record(body(timestamp=b"\x80" * 10 + b"\x01")), "timestamp delta is cut off or too long"),
        (record(body(offset=TOO_LONG)), "offset delta is cut off or too long"),
        (record(body(offset=varint(1))), "offset delta 1 is out of order"),
        (record(body(offset=varint(-1))), "offset delta -1 is out of order"),
        (record(body(key=TOO_LONG)), "key length is cut off or too long"),
        (record(body(key=varint(-2))), "key length is -2"),
        (record(body(key=varint(100))), "key length is 100, 3 bytes are left"),
        (record(body(value=varint((1 << 31) - 1))), "value length is 2147483647, 1 bytes"),
        (record(body(value=varint(-5) + b"x")), "value length is -5"),
        (record(body(headers=varint(-1))), "header count is -1"),
        (record(body(headers=b"\x00extra")), "header count is 0, 5 bytes come after"),
        (record(body(headers=varint(1 << 30))), "headers can't fit"),
        (record(body(headers=varint(1) + varint(-1) + b"\x01")), "impossible length -1"),
        (record(body(headers=varint(1) + varint(9) + b"k")), "impossible length 9"),
        (record(body(headers=varint(1) + b"\x02k" + varint(-2))), "impossible length -2"),
        (record(body(headers=varint(1) + b"\x02k" + b"\x80")), "is cut off or too long"),
        (record(body(headers=varint(1) + b"\x02k\x01rest")), "bytes are left after its last"),
        (record(body())[:-1] + b"\x80", "header count is cut off"),
        (record(body()) + b"x", "1 bytes come after"),
        (record(b"\x00" * 5) + b"\x00\x00", "its length is 5"),
        (varint(-1) + b"\x00" * 10, "its length is -1"),
        (varint(1 << 33) + b"\x00" * 10, "its length is 8589934592, 10 bytes are left"),
        (varint(200) + body(), "its length is 200, 7 bytes are left"),
        (TOO_LONG + body(), "its length is cut off or too long"),
        (b"\x80" * 9, "its length is cut off or too long"),
        (b"", "1 records can't fit into 0 bytes"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_each_damage_is_named(records, reason, codec):
    blob = wrap(bytes(compress(codec, records)), count=1, base_offset=4711, attributes=codec)
    text = rejected(blob)
    assert text.startswith("the record batch at offset 4711 is damaged: ")
    assert reason in text


def test_damaged_headers_are_named_among_many_records_too():
    good = [encode_record(NaiveRecord(i, 0, None, b"v", [("k", b"w")]), 0, 0) for i in range(40)]
    bad = record(body(offset=varint(40), headers=varint(1) + b"\x02k" + varint(50)))
    text = rejected(wrap(b"".join([*good, bad]), count=41))
    assert "record 40: a header's key or value has the impossible length 50" in text


def test_bytes_behind_the_last_header_are_found_among_many_records_too():
    records = [
        record(body(offset=varint(i), headers=varint(1) + b"\x02k\x01" + b"?" * (i == 7)))
        for i in range(40)
    ]
    text = rejected(wrap(b"".join(records), count=40))
    assert "record 7: bytes are left after its last header" in text


def test_the_damaged_batch_is_named_among_many():
    batches = [encode_batch([NaiveRecord(i, 0, None, b"v%d" % i)]) for i in range(100)]
    batches[63] = wrap(record(body(key=varint(60))), count=1, base_offset=63)
    assert rejected(b"".join(batches)).startswith(
        "the record batch at offset 63 is damaged: record 0"
    )


@pytest.mark.parametrize("count", [1, 3, 1000, (1 << 31) - 1, -1])
def test_wrong_counts_are_found(count):
    records = b"".join(encode_record(NaiveRecord(i, 0, None, b"v" * 50), 0, 0) for i in range(2))
    text = rejected(wrap(records, count=count, last_offset_delta=max(count, 2)))
    assert "records" in text or "length" in text or "come after" in text


def test_last_offset_delta_below_the_count_is_corrupt():
    blob = wrap(encode_record(GOOD, 0, 0) * 2, count=2, last_offset_delta=0)
    assert "2 records, but a last offset delta of 0" in rejected(blob)


def test_offsets_that_do_not_ascend_are_corrupt():
    blob = wrap(encode_record(GOOD, 0, 0) * 2, count=2)
    assert "offset delta 0 is out of order" in rejected(blob)


def test_old_message_format_is_named():
    blob = bytearray(encode_batch([GOOD]))
    blob[16] = 1
    assert "magic 1" in rejected(blob)


def test_negative_batch_length_ends_the_reading_with_an_error():
    blob = bytearray(encode_batch([GOOD]))
    struct.pack_into(">i", blob, 8, -5)
    assert "length is -5" in rejected(blob)


def test_bomb_is_stopped_at_the_limit_given():
    blob = wrap(bytes(compress(Codec.ZSTD, bytes(1 << 24))), count=1, attributes=Codec.ZSTD)
    assert "more than the 1000000 bytes allowed" in rejected(blob, max_decompressed_bytes=1_000_000)


def test_unknown_codec_is_unsupported():
    with pytest.raises(UnsupportedCompressionError, match="codec 6"):
        decode_batches(wrap(encode_record(GOOD, 0, 0), count=1, attributes=6))


@given(
    st.binary(max_size=300),
    st.integers(0, 40),
    st.sampled_from(list(Codec)),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(300))
def test_random_bytes_behind_a_right_crc_never_escape_as_another_error(data, count, codec, raw):
    content = data if raw else bytes(compress(codec, data))
    blob = wrap(content, count=count, attributes=codec, last_offset_delta=100)
    try:
        decode_batches(blob + encode_batch([GOOD]), include_headers=True)
    except CorruptRecordError as error:
        assert "\n" not in str(error)


def test_mutated_batches_never_escape_as_another_error_and_agree_on_what_they_read():
    """CRCs are off, so that every mutation reaches the parser; several batches at once."""
    generator = random.Random(11)
    records = [
        NaiveRecord(i, i, b"k" * (i % 3), b"\x0e\x00" * (i % 40), [("h", b"x\xff")] * (i % 3))
        for i in range(60)
    ]
    blob = b"".join(encode_batch(records[i : i + 20]) for i in range(0, 60, 20))
    survived = 0
    for _ in range(1500):
        mutated = bytearray(blob)
        for _ in range(generator.randint(1, 3)):
            mutated[generator.randrange(len(mutated))] = generator.choice(
                (0, 1, 2, 12, 0x7F, 0x80, 0xFF, generator.randrange(256))
            )
        try:
            decoded = decode_batches(mutated, include_headers=True, check_crcs=False)
        except (CorruptRecordError, UnsupportedCompressionError):
            continue
        for column in (decoded.keys, decoded.values, decoded.headers):
            if column is not None:
                column.validate(full=True)
        survived += 1
    assert survived > 100


@pytest.mark.parametrize(
    "payload_of",
    [
        lambda: bytes(1 << 20),
        lambda: b"\x0c\x00" * (1 << 19),
        lambda: b"\x0e\x00\x00\x00\x01\x01\x00\x00" * (1 << 17),
        lambda: b"\x80\x01\x00" * (1 << 18),
        lambda: b"\xfe\xff\x03\x00" * (1 << 18),
        lambda: encode_batch([NaiveRecord(i, 0, None, b"inner") for i in range(40_000)]),
    ],
    ids=["zeros", "short lengths", "inner records", "lengths", "far lengths", "a batch within"],
)
@pytest.mark.parametrize("records", [1, 100])
def test_values_that_look_like_records_are_still_values(payload_of, records):
    """Every few bytes a false start; the work stays linear and the chain is right."""
    payload = payload_of()
    size = len(payload) // records
    parts = [payload[i * size : i * size + size - i] for i in range(records)]
    blob = encode_batch([NaiveRecord(i, 0, None, part) for i, part in enumerate(parts)])
    started = time.monotonic()
    assert decode_batches(blob).values.to_pylist() == parts
    assert time.monotonic() - started < 30


def test_record_chain_of_a_hostile_batch_takes_linear_time():
    """A chain that almost holds: the last length is wrong, so every shortcut fails."""
    records = b"".join(record(body(offset=varint(i), value=b"\x02v")) for i in range(60_000))
    blob = wrap(records + varint(500) + body(), count=60_001)
    started = time.monotonic()
    assert "record 60000: its length is 500" in rejected(blob)
    assert time.monotonic() - started < 30


def test_many_headers_of_one_record_take_linear_time():
    headers = varint(200_000) + b"\x02k\x01" * 200_000
    started = time.monotonic()
    decoded = decode_batches(wrap(record(body(headers=headers)), count=1), include_headers=True)
    assert len(decoded.headers[0]) == 200_000
    assert time.monotonic() - started < 30


def test_regions_that_touch_do_not_run_into_each_other():
    """The last record of one region claims the first of the next."""
    inner = record(body())
    source = np.frombuffer(varint(2 * len(inner)) + inner[1:] + inner + inner, np.uint8)
    regions = RecordRegions(
        np.array([0, len(source) - len(inner)]),
        np.array([len(source) - len(inner), len(source)]),
        np.array([1, 1]),
    )
    with pytest.raises(ValueError, match="its length is"):
        find_records(source, regions)
