"""The header of a batch and a leader's checks."""

import struct
import subprocess
import sys

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from storage_engine.protocol.records.record_batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    advance_sequence,
    compute_crc,
    crc_matches,
    iter_headers,
    patch,
    patch_log_append_time,
    patch_producer,
    read_header,
    validate_for_append,
)
from storage_engine.tests.protocol.naive_codec import NaiveRecord, decode_batch, encode_batch, wrap

LIMIT = 1 << 20


def batch_of(count: int, base_offset: int = 0) -> bytearray:
    records = [NaiveRecord(base_offset + i, 1000 + i, None, b"v" * i) for i in range(count)]
    return bytearray(encode_batch(records))


def resealed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    return batch


def test_header_has_the_fields_that_were_written():
    batch = batch_of(3, base_offset=70)
    header = read_header(batch)
    assert header.base_offset == 70
    assert header.size_in_bytes == len(batch)
    assert (header.last_offset, header.next_offset) == (72, 73)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert header.records_count == 3
    assert header.magic == 2
    assert (header.compression, header.timestamp_type) == (0, 0)
    assert not header.is_control
    assert not header.is_transactional


def test_header_that_is_cut_off_is_corrupt():
    with pytest.raises(CorruptRecordError, match="only 60 are there"):
        read_header(batch_of(1)[:60])


def test_position_beyond_the_buffer_is_corrupt():
    with pytest.raises(CorruptRecordError, match="only 0 are there"):
        read_header(batch_of(1), 4000)


@pytest.mark.parametrize("length", [48, 0, -1, -(1 << 31)])
def test_length_below_the_least_is_corrupt(length):
    batch = batch_of(1)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecordError, match=f"its length is {length}"):
        read_header(batch)


def test_iteration_ends_before_a_batch_that_is_cut_off():
    first, second = batch_of(1), batch_of(2, base_offset=1)
    headers = list(iter_headers(first + second + second[:-1]))
    assert [position for position, _ in headers] == [0, len(first)]
    assert [header.base_offset for _, header in headers] == [0, 1]


def test_iteration_over_nothing_gives_nothing():
    assert list(iter_headers(b"")) == []


def test_intact_batches_are_accepted_with_their_positions():
    first, second = batch_of(2), batch_of(3)
    checked = validate_for_append(memoryview(first + second), max_message_bytes=LIMIT)
    assert [(position, header.records_count) for position, header in checked] == [
        (0, 2),
        (len(first), 3),
    ]


def test_no_batch_at_all_is_refused():
    with pytest.raises(InvalidRecordError, match="no record batch"):
        validate_for_append(b"", max_message_bytes=LIMIT)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_format_is_refused_with_its_own_error(magic):
    message = struct.pack(">qiIb", 0, 14, 0, magic) + bytes(9)
    with pytest.raises(UnsupportedForMessageFormatError, match=f"magic {magic}"):
        validate_for_append(message, max_message_bytes=LIMIT)


def test_unknown_magic_is_corrupt():
    batch = batch_of(1)
    batch[16] = 3
    with pytest.raises(CorruptRecordError, match="magic 3"):
        validate_for_append(batch, max_message_bytes=LIMIT)


@pytest.mark.parametrize("cut", [1, 10, 40, 75])
def test_batch_that_is_cut_off_is_corrupt(cut):
    batch = batch_of(2)
    with pytest.raises(CorruptRecordError):
        validate_for_append(batch[:-cut], max_message_bytes=LIMIT)


@pytest.mark.parametrize("at", [17, 21, 30, 57, 61, -1])
def test_any_flipped_bit_behind_the_magic_is_found(at):
    batch = batch_of(5)
    batch[at] ^= 1
    with pytest.raises(KafkaError) as failure:
        validate_for_append(batch, max_message_bytes=LIMIT)
    assert failure.value.code is ErrorCode.CORRUPT_MESSAGE


def test_batch_above_the_limit_is_too_large():
    batch = batch_of(5)
    with pytest.raises(RecordTooLargeError, match=r"max.message.bytes = 50"):
        validate_for_append(batch, max_message_bytes=50)


def test_batch_of_exactly_the_limit_is_accepted():
    batch = batch_of(5)
    assert validate_for_append(batch, max_message_bytes=len(batch))


@pytest.mark.parametrize("count", [0, -1, 4, 6])
def test_count_that_is_not_the_last_offset_delta_plus_one_is_invalid(count):
    batch = batch_of(5)
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(InvalidRecordError, match=f"of {count} records"):
        validate_for_append(resealed(batch), max_message_bytes=LIMIT)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        (5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (7, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (CONTROL_BIT, ErrorCode.INVALID_RECORD),
        (CONTROL_BIT | TRANSACTIONAL_BIT, ErrorCode.INVALID_RECORD),
        (TRANSACTIONAL_BIT, ErrorCode.INVALID_RECORD),
        (TIMESTAMP_TYPE_BIT, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_attributes_that_a_client_may_not_set_are_refused(attributes, code):
    with pytest.raises(KafkaError) as failure:
        validate_for_append(wrap(b"x" * 7, count=1, attributes=attributes), max_message_bytes=LIMIT)
    assert failure.value.code is code


@pytest.mark.parametrize("codec", range(5))
def test_every_known_codec_passes_without_a_look_inside(codec):
    batch = wrap(b"not really compressed", count=1, attributes=codec)
    assert validate_for_append(batch, max_message_bytes=LIMIT)[0][1].compression == codec


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
def test_producer_id_needs_an_epoch_and_a_sequence(epoch, sequence):
    batch = batch_of(1)
    patch_producer(batch, 0, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    with pytest.raises(InvalidRecordError, match="producer id 7"):
        validate_for_append(batch, max_message_bytes=LIMIT)


def test_unsupported_codec_error_has_its_type():
    with pytest.raises(UnsupportedCompressionError):
        validate_for_append(wrap(b"x" * 7, count=1, attributes=6), max_message_bytes=LIMIT)


def test_leader_patches_offset_and_epoch_without_touching_the_crc():
    batch = batch_of(3)
    crc = read_header(batch).crc
    patch(batch, 0, base_offset=1 << 40, leader_epoch=9)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.crc) == (1 << 40, 9, crc)
    assert crc_matches(batch, 0, len(batch))


def test_batch_in_the_middle_of_a_buffer_is_patched_in_place():
    first, second = batch_of(2), batch_of(2)
    both = bytearray(first + second)
    patch(memoryview(both), len(first), base_offset=55, leader_epoch=1)
    assert both[: len(first)] == first
    assert read_header(both, len(first)).base_offset == 55


def test_log_append_time_replaces_the_time_of_every_record():
    batch = batch_of(3)
    patch_log_append_time(batch, 0, 777_000)
    assert crc_matches(batch, 0, len(batch))
    assert read_header(batch).timestamp_type == 1
    assert {record.timestamp_ms for record in decode_batch(bytes(batch))} == {777_000}


def test_producer_stamp_is_covered_by_the_crc():
    batch = batch_of(3)
    patch_producer(batch, 0, producer_id=5, producer_epoch=2, base_sequence=0x7FFFFFFE)
    (_, header), *_ = validate_for_append(batch, max_message_bytes=LIMIT)
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert header.last_sequence == 0


def test_sequence_wraps_from_the_largest_int32_to_zero():
    assert advance_sequence(0x7FFFFFFF, 1) == 0
    assert advance_sequence(5, 3) == 8


def test_batch_without_sequence_has_no_last_sequence():
    assert read_header(batch_of(3)).last_sequence == -1


def test_header_constant_is_where_the_records_begin():
    assert wrap(b"records", count=1)[HEADER_BYTES:] == b"records"


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
