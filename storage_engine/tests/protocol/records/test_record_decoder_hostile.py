"""Bytes that lie become a CorruptRecordError of one line, or rows, soon."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, UnsupportedCompressionError
from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.protocol.naive_codec import (
    NaiveRecord,
    encode_batch,
    encode_record,
    varint,
    wrap,
)
from storage_engine.tests.protocol.records.damaged_records import GOOD, body_of, record, rejected
from storage_engine.tests.sampling import examples


def test_the_damaged_batch_is_named_among_many():
    batches = [encode_batch([NaiveRecord(i, 0, None, b"v%d" % i)]) for i in range(100)]
    batches[63] = wrap(record(body_of(key=varint(60))), count=1, base_offset=63)
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
