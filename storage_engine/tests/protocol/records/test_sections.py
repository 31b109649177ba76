"""Batches are read in bounded steps, however large they are unpacked."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records import record_decoder
from storage_engine.protocol.records.compression import compress
from storage_engine.protocol.records.copied_batches import copied_batches
from storage_engine.protocol.records.record_batch import TIMESTAMP_TYPE_BIT, Codec, read_header
from storage_engine.protocol.records.record_decoder import iter_decoded
from storage_engine.protocol.records.sections import SECTION_BYTES, iter_sections
from storage_engine.tests.protocol.naive_codec import (
    NaiveRecord,
    encode_batch,
    encode_record,
    wrap,
)

STREAMED = [codec for codec in Codec if codec is not Codec.NONE]
MANY_ZEROS = bytes(1 << 20)


def sections_of(batch, section_bytes):
    data = memoryview(batch)
    return list(iter_sections(read_header(data), data, section_bytes=section_bytes))


def records(sizes):
    return [NaiveRecord(number, number, b"k", b"v" * size, []) for number, size in enumerate(sizes)]


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(1, 600),
    st.sampled_from(STREAMED),
)
def test_sections_are_the_records_of_the_batch_in_order(sizes, section_bytes, codec):
    wanted = records(sizes)
    sections = sections_of(encode_batch(wanted, codec=codec), section_bytes)
    plain = [encode_record(record, 0, 0) for record in wanted]
    done = 0
    for section in sections:
        end = done + section.header.records_count
        assert section.first_record == done < end
        assert bytes(section.records) == b"".join(plain[done:end])
        done = end
    assert done == len(wanted)
    largest = max(map(len, plain))
    if codec is not Codec.SNAPPY:
        assert all(len(each.records) < section_bytes + largest for each in sections)


@pytest.mark.parametrize("codec", STREAMED)
def test_a_batch_above_every_limit_is_decoded_piece_by_piece(codec):
    count = 140
    batch = encode_batch(
        [NaiveRecord(n, n, None, MANY_ZEROS, []) for n in range(count)], codec=codec
    )
    offsets = []
    for piece in iter_decoded(batch):
        assert piece.values.nbytes <= SECTION_BYTES + len(MANY_ZEROS)
        assert piece.values.to_pylist() == [MANY_ZEROS] * len(piece)
        offsets += piece.offsets.to_pylist()
    assert offsets == list(range(count))


def test_a_range_within_a_large_batch_is_decoded_alone():
    batch = encode_batch(
        [NaiveRecord(n, n, None, MANY_ZEROS, []) for n in range(40)], codec=Codec.ZSTD
    )
    (piece,) = iter_decoded(batch, start_offset=19, end_offset=21)
    assert piece.offsets.to_pylist() == [19, 20]


def test_a_large_batch_that_has_to_be_made_anew_is_copied():
    batch = encode_batch(
        [NaiveRecord(n, 5, None, MANY_ZEROS, []) for n in range(140)],
        codec=Codec.ZSTD,
        attributes=TIMESTAMP_TYPE_BIT,
        base_offset=0,
    )
    copied = list(copied_batches([memoryview(batch)], start_offset=3))
    assert sum(each.batch.record_count for each in copied) == 137
    assert next(span.source_start for each in copied for span in each.spans) == 3
    sizes = [
        len(piece.values.to_pylist()) for each in copied for piece in iter_decoded(each.batch.data)
    ]
    assert sum(sizes) == 137


def test_a_limit_holds_where_a_reader_has_one():
    batch = encode_batch(
        [NaiveRecord(n, n, None, MANY_ZEROS, []) for n in range(40)], codec=Codec.ZSTD
    )
    with pytest.raises(CorruptRecordError, match="more than the 30000000 bytes allowed"):
        list(iter_decoded(batch, max_decompressed_bytes=30_000_000))


@pytest.mark.parametrize(
    ("plain", "count", "reason"),
    [
        (b"".join(encode_record(r, 0, 0) for r in records([9] * 9)), 10, "record 9: "),
        (b"".join(encode_record(r, 0, 0) for r in records([9] * 9)), 4, "says 4 records"),
        (b"".join(encode_record(r, 0, 0) for r in records([9] * 9))[:-3], 9, "record 8"),
        (
            encode_record(records([90])[0], 0, 0) * 3,
            3,
            "record 1: its offset delta is out of order",
        ),
        (b"\xff" * 200, 20, "record 0: its length is too long"),
        (b"\x02" + bytes(200), 20, "record 0: its length is 1"),
        (b"\xfe\xff\xff\xff\x0f" + bytes(200), 20, "record 0: it has 2147483647 bytes"),
    ],
)
def test_what_does_not_fit_its_header_is_corrupt_and_named(monkeypatch, plain, count, reason):
    batch = wrap(bytes(compress(Codec.ZSTD, plain)), count=count, attributes=Codec.ZSTD)
    monkeypatch.setattr(
        record_decoder, "iter_sections", functools.partial(iter_sections, section_bytes=50)
    )
    with pytest.raises(CorruptRecordError, match=f"offset 0 .*{reason}"):
        list(iter_decoded(batch))
