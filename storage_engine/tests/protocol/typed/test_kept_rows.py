"""Typed batches for another topic with the same schema: the same rows, times and headers, without
gaps, and what a leader takes."""

from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.records.copied_batches import Span, copied_batches
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    patch,
    patch_log_append_time,
    patch_producer,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_filter import StoredBatch, emptied
from storage_engine.protocol.typed.directory import OFFSETS, TIMESTAMPS
from storage_engine.protocol.typed.kept_rows import OpenTypedBatches, TypedTarget
from storage_engine.protocol.typed.typed_batch import check_typed_batch, directory_of
from storage_engine.tests.log.compaction_support import Row
from storage_engine.tests.log.typed_support import FIRST, SCHEMA, typed_batch, typed_rows_of

TARGET = TypedTarget(UUID(int=5), SCHEMA)
PAIRS = [("a", "one"), ("b", None), ("c", "three"), ("d", "four")]
TIMES = [40, 10, 20, 30]


def source_batch(base_offset=100, **more) -> bytearray:
    batch = typed_batch(PAIRS, timestamps_ms=TIMES, compression="lz4", **more)
    patch_producer(batch, 0, producer_id=9, producer_epoch=1, base_sequence=77, transactional=True)
    patch(batch, 0, base_offset=base_offset, leader_epoch=3)
    return batch


def kept(batch: bytearray, rows: list[int], horizon: int | None = None) -> bytearray:
    """The batch as compaction leaves it with these rows."""
    stored = StoredBatch(read_header(batch), memoryview(batch))
    mask = np.isin(np.arange(len(PAIRS)), rows)
    (found,) = OpenTypedBatches([stored], SCHEMA).rewritten(mask, [horizon])
    return bytearray(found)


def copied(batch, start_offset=0, target=TARGET):
    found = list(copied_batches([memoryview(batch)], start_offset=start_offset, typed=target))
    for made, _ in found:
        data = memoryview(bytearray(made.data))
        # A leader takes it.
        ((_, header),) = validate_for_append(data, max_message_bytes=1 << 20, allow_typed=True)
        check_typed_batch(header, data, schema=SCHEMA, topic_id=TARGET.topic_id)
        assert (header.producer_id, header.attributes & TRANSACTIONAL_BIT) == (-1, 0)
        assert made.record_count == header.records_count
    return found


def rows(offsets, times=TIMES):
    """The rows of these offsets as readers get them, with the offsets of the copy."""
    names = [None if name is None else name.encode() for _, name in PAIRS]
    return [
        Row(number, PAIRS[offset][0].encode(), names[offset], times[offset])
        for number, offset in enumerate(offsets)
    ]


def test_columns_are_copied_byte_for_byte_under_the_targets_id():
    batch = source_batch(version=2)
    ((made, spans),) = copied(batch)
    assert spans == (Span(100, 0, 4),)
    assert typed_rows_of(memoryview(made.data)) == rows(range(4))
    before, after = (directory_of(read_header(each), each) for each in (batch, made.data))
    assert (after.topic_id, after.schema_version) == (TARGET.topic_id, 2)
    assert after.entries == before.entries
    assert bytes(made.data[HEADER_BYTES + after.size :]) == batch[HEADER_BYTES + before.size :]


def test_gaps_are_closed_and_spans_tell_where_they_were():
    ((made, spans),) = copied(kept(source_batch(), [0, 2, 3]))
    assert spans == (Span(100, 0, 1), Span(102, 1, 2))
    assert typed_rows_of(memoryview(made.data)) == rows([0, 2, 3])
    assert directory_of(read_header(made.data), made.data).column(OFFSETS) is None


def test_a_delete_horizon_is_not_copied_and_times_stay():
    compacted = kept(source_batch(), [0, 1, 2, 3], horizon=1 << 50)
    assert read_header(compacted).base_timestamp == 1 << 50
    ((made, _),) = copied(compacted)
    assert typed_rows_of(memoryview(made.data)) == rows(range(4))
    assert read_header(made.data).base_timestamp == TIMES[0]


def test_rows_below_the_start_are_left_out():
    ((made, spans),) = copied(source_batch(), start_offset=102)
    assert spans == (Span(102, 0, 2),)
    assert typed_rows_of(memoryview(made.data)) == rows([2, 3])
    assert read_header(made.data).max_timestamp == 30
    assert copied(source_batch(), start_offset=104) == []


def test_the_time_of_the_append_becomes_that_of_the_rows():
    batch = source_batch()
    patch_log_append_time(batch, 0, 5000)
    ((made, _),) = copied(batch)
    assert typed_rows_of(memoryview(made.data)) == rows(range(4), [5000] * 4)
    header = read_header(made.data)
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (0, 5000, 5000)
    assert directory_of(header, made.data).column(TIMESTAMPS) is None


def test_batches_without_rows_are_left_out():
    assert copied(bytearray(emptied(read_header(source_batch())))) == []


def test_a_later_version_than_the_targets_is_told_before_anything_is_copied():
    older = TypedTarget(TARGET.topic_id, FIRST)
    both = source_batch() + source_batch(200, version=2)
    found = copied_batches([memoryview(both)], start_offset=0, typed=older)
    with pytest.raises(UnknownSchemaVersionError):
        list(found)


@pytest.mark.parametrize("target", [TARGET, None])
def test_damaged_batches_and_those_without_a_target_are_refused_by_their_offset(target):
    batch = source_batch()
    if target is not None:
        batch[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="at offset 100 can't be copied"):
        list(copied_batches([memoryview(batch)], start_offset=0, typed=target))


def test_who_decodes_records_is_told_that_these_are_columns():
    with pytest.raises(CorruptRecordError, match="at offset 100 has columns, not records"):
        decode_batches(memoryview(source_batch()))


def test_a_dictionary_does_not_grow_into_many_long_values():
    """128 rows with one long name: the few that compaction leaves have it once, too."""
    name = "long " * 2000
    batch = typed_batch([(f"k{number}", name) for number in range(128)])
    stored = StoredBatch(read_header(batch), memoryview(batch))
    opened = OpenTypedBatches([stored], SCHEMA)
    (made,) = opened.rewritten(np.arange(128) % 16 == 0, [None])
    assert len(batch) < 30_000
    assert len(made) <= len(batch)
    assert [row.value for row in typed_rows_of(memoryview(made))] == [name.encode()] * 8
    assert isinstance(opened.offsets, np.ndarray)
    assert pa.types.is_binary(next(iter(opened.key_arrays())).type)
