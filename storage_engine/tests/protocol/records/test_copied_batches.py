"""Batches for another log: the same records, in order, with their offsets in the source told."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.protocol.records.copied_batches import SMALL_BYTES, copied_batches
from storage_engine.protocol.records.record_batch import (
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    patch_producer,
    read_header,
    validate_for_append,
)
from storage_engine.tests.protocol.naive_codec import (
    NaiveRecord,
    decode_batch,
    encode_batch,
    encode_record,
    wrap,
)
from storage_engine.tests.sampling import examples

NULLABLE = st.none() | st.binary(max_size=12)
CODECS = st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD])
SIZES = st.sampled_from([0, 5, SMALL_BYTES])
"""Sizes of the value of a batch's first record."""


@st.composite
def logs(draw):
    """Batches of a log, and the records that readers see, with the times that they have."""
    offset = draw(st.integers(0, 1 << 40))
    batches: list[bytes] = []
    seen: list[NaiveRecord] = []
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.integers(0, 2))
        if draw(st.booleans()) and draw(st.booleans()):
            attributes = TRANSACTIONAL_BIT | CONTROL_BIT
            batches.append(wrap(b"marker", count=1, attributes=attributes, base_offset=offset))
            offset += 1
            continue
        records = []
        padding = bytes(draw(SIZES))
        base = offset + draw(st.integers(0, 1))
        for _ in range(draw(st.integers(1, 5))):
            offset += draw(st.sampled_from([0, 0, 0, 3]))
            headers = draw(st.lists(st.tuples(st.text(max_size=3), NULLABLE), max_size=2))
            time_ms = draw(st.integers(-1, 1 << 40))
            value = draw(NULLABLE)
            if padding:
                value, padding = padding, b""
            records.append(NaiveRecord(offset, time_ms, draw(NULLABLE), value, headers))
            offset += 1
        offset += draw(st.sampled_from([0, 0, 2]))
        attributes = draw(st.sampled_from([0, TRANSACTIONAL_BIT, TIMESTAMP_TYPE_BIT, 0x40]))
        encoded = encode_batch(
            records,
            codec=draw(CODECS),
            attributes=attributes,
            base_offset=min(base, records[0].offset),
            last_offset=offset - 1,
        )
        batches.append(encoded)
        # As the naive reader sees the times of a batch with LogAppendTime.
        seen += decode_batch(encoded)
    return batches, seen


def cut(batches, bounds):
    """In pieces of whole batches."""
    places = sorted({0, len(batches), *(bound % (len(batches) + 1) for bound in bounds)})
    return [memoryview(b"".join(batches[a:b])) for a, b in pairwise(places)]


@settings(max_examples=examples(120), deadline=None)
@given(logs(), st.lists(st.integers(0, 9)), st.integers(0, 20))
def test_the_same_records_come_with_their_offsets_in_the_source(log, bounds, skipped):
    batches, seen = log
    start = seen[0].offset + skipped if seen else 0
    copied = list(copied_batches(cut(batches, bounds), start_offset=start))
    found = []
    for batch, spans in copied:
        patch_producer(
            batch.data, 0, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
        )
        validate_for_append(batch.data, max_message_bytes=1 << 20)
        records = decode_batch(bytes(batch.data))
        assert len(records) == batch.record_count == sum(span.records for span in spans)
        assert [record.offset for record in records] == list(range(len(records)))
        assert spans[0].first_row == 0
        for span in spans:
            for row in range(span.records):
                record = records[span.first_row + row]
                found.append(
                    NaiveRecord(
                        span.source_start + row,
                        record.timestamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                    )
                )
    assert found == [record for record in seen if record.offset >= start]


def numbered(offset, count, *, size=4, codec=Codec.NONE):
    records = [NaiveRecord(offset + n, 1000 + n, None, b"x" * size) for n in range(count)]
    return encode_batch(records, codec=codec)


def test_a_large_batch_is_copied_without_a_look_at_its_records():
    # Nothing that could be decoded: only what passes it by copies it.
    body = b"no records at all" * SMALL_BYTES
    batch = wrap(body, count=7, base_offset=100, attributes=TRANSACTIONAL_BIT | Codec.ZSTD)
    (copied,) = copied_batches([memoryview(batch)], start_offset=100)
    assert bytes(copied.batch.data[61:]) == body
    assert copied.spans == ((100, 0, 7),)
    assert read_header(copied.batch.data).attributes == Codec.ZSTD


def test_small_neighbours_of_one_codec_become_one_batch():
    log = [numbered(2 * n, 2) for n in range(50)] + [numbered(100, 1, codec=Codec.LZ4)]
    copied = list(copied_batches([memoryview(b"".join(log))], start_offset=0))
    assert [(each.batch.record_count, each.spans) for each in copied] == [
        (100, ((0, 0, 100),)),
        (1, ((100, 0, 1),)),
    ]


def test_names_of_headers_that_are_no_text_stay_as_they_are():
    record = encode_record(NaiveRecord(0, 0, b"k", b"v", [("name", b"")]), 0, 0)
    odd = record.replace(b"name", b"\xff\xfe\xfd\xfc")
    pieces = [memoryview(wrap(odd, count=1) + wrap(odd, count=1, base_offset=1))]
    (copied,) = copied_batches(pieces, start_offset=0)
    assert bytes(copied.batch.data[61:]).startswith(odd)
    assert copied.spans == ((0, 0, 2),)


def test_small_batches_that_cant_be_decoded_are_copied_as_they_are():
    body = b"no record at all"
    pieces = [memoryview(numbered(0, 1) + wrap(body, count=1, base_offset=1) + numbered(2, 1))]
    copied = list(copied_batches(pieces, start_offset=0))
    assert [each.spans for each in copied] == [((n, 0, 1),) for n in range(3)]
    assert bytes(copied[1].batch.data[61:]) == body


def test_what_is_damaged_is_refused():
    def failing(batch, error):
        with pytest.raises(CorruptRecordError, match=error):
            list(copied_batches([memoryview(bytes(batch))], start_offset=0))

    damaged = bytearray(numbered(7, 3))
    damaged[-1] ^= 1
    failing(damaged, "at offset 7 can't be copied: its CRC does not match")
    failing(wrap(b"", count=1, attributes=6), "its compression codec 6 is unknown")
    failing(wrap(b"", count=5, last_offset_delta=1), "it has 5 records")
    old = bytearray(numbered(7, 3))
    old[16] = 1
    failing(old, "it has magic 1")
