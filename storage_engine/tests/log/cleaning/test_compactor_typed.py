"""Compaction of typed topics, by their key columns (R-LOG10)."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.typed.comparisons import ColumnStatistics
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    iter_headers,
    patch,
    patch_log_append_time,
    read_header,
    seal,
)
from storage_engine.protocol.typed.directory import (
    OFFSETS,
    TIMESTAMPS,
    encode_directory,
    read_directory,
    statistics_of,
)
from storage_engine.protocol.typed.typed_batch import directory_of
from storage_engine.tests.log.compaction_support import CONFIG, DAY_MS, Row, compact, newest_of
from storage_engine.tests.log.support import check_indexes, open_log, read_all
from storage_engine.tests.log.typed_support import (
    FIRST,
    SCHEMA,
    put_typed,
    typed_batch,
    typed_rows,
)
from storage_engine.tests.sampling import examples

TYPED = replace(CONFIG, schema=SCHEMA)


def fill(log, count=30, *, epoch=0):
    for number in range(count):
        put_typed(log, [("filler", f"{number}" + "x" * 80)], epoch=epoch)


def reopened(path, log, config=TYPED):
    log.close()
    return open_log(
        path,
        config,
        clean=True,
        recovery_point=log.log_end_offset,
        first_dirty_offset=log.cleaning.first_dirty_offset,
    )


def first_directory(log):
    view = log.reads.read(0, max_bytes=1).view()
    (_, header), *_ = iter_headers(view)
    return read_directory(view[HEADER_BYTES : header.size_in_bytes])


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_the_newest_row_of_each_key_stays_at_its_offset(tmp_path, compression):
    log = open_log(tmp_path, TYPED)
    for number in range(8):
        for begin in range(0, 20, 5):
            pairs = [(f"key-{key}", f"{number}:" + "v" * 60) for key in range(begin, begin + 5)]
            put_typed(log, pairs, compression=compression, version=1 + number % 2)
    before = typed_rows(log)
    end = log.log_end_offset
    assert compact(log)
    after = typed_rows(log)
    assert newest_of(after) == newest_of(before)
    assert set(after) < set(before)
    clean = [row for row in after if row.offset < log.cleaning.first_dirty_offset]
    assert len({row.key for row in clean}) == len(clean)
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    again = reopened(tmp_path, log)
    assert typed_rows(again) == after
    again.close()
    check_indexes(tmp_path)


def test_a_batch_that_loses_rows_keeps_all_else(tmp_path):
    log = open_log(tmp_path, TYPED)
    pairs = [("a", "z" * 50), ("b", "hello"), ("c", "a" * 50)]
    put_typed(
        log, pairs, compression="zstd", epoch=3, producer=(7, 2, 0), timestamps_ms=[30, 10, 20]
    )
    before, told = read_all(log)[0], first_directory(log)
    fill(log, epoch=3)
    put_typed(log, [("a", "new"), ("c", "new")], epoch=3)
    fill(log, epoch=3)
    assert compact(log)
    header = read_all(log)[0]
    assert header == before._replace(
        records_count=1, max_timestamp=10, crc=header.crc, length=header.length
    )
    assert typed_rows(log)[0] == Row(1, b"b", b"hello", 10)
    directory = first_directory(log)
    assert (directory.topic_id, directory.schema_version) == (told.topic_id, 1)
    assert directory.column(OFFSETS) is not None
    name = SCHEMA.version(1).column("name")
    entry = directory.column(name.column_id)
    assert statistics_of(entry, name.type, directory.rows) == ColumnStatistics(
        rows=1, null_count=0, minimum="hello", maximum="hello"
    )
    log.close()


def test_untouched_batches_stay_byte_for_byte(tmp_path):
    log = open_log(tmp_path, TYPED)
    for number in range(20):
        put_typed(log, [(f"key-{number}", "v" * 50), (f"other-{number}", "x")])
    before = bytes(log.reads.read(0, max_bytes=1 << 20).view())
    assert compact(log)
    assert bytes(log.reads.read(0, max_bytes=1 << 20).view())[: len(before)].startswith(before)
    log.close()


def test_a_tombstone_stays_for_its_time_and_goes_after_it(tmp_path):
    """The batch has no column of timestamps before the delete horizon takes the place of its base
    timestamp."""
    log = open_log(tmp_path, TYPED)
    put_typed(log, [("a", "1"), ("b", "1")], timestamps_ms=[500, 500])
    deleted = put_typed(log, [("a", None), ("b", "2")], timestamps_ms=[900, 900])
    fill(log)
    assert compact(log, now_ms=1_000_000)
    kept = [row for row in typed_rows(log) if row.key != b"filler"]
    assert kept == [Row(deleted, b"a", None, 900), Row(deleted + 1, b"b", b"2", 900)]
    assert first_directory(log).column(TIMESTAMPS) is not None
    fill(log)
    assert compact(log, now_ms=1_000_000 + DAY_MS - 1)
    assert [row for row in typed_rows(log) if row.key != b"filler"] == kept
    log = reopened(tmp_path, log)
    fill(log)
    assert compact(log, now_ms=1_000_000 + DAY_MS)
    assert [row for row in typed_rows(log) if row.key != b"filler"] == kept[1:]
    log.close()


def test_a_batch_of_log_append_time_keeps_its_time(tmp_path):
    log = open_log(tmp_path, TYPED)
    data = typed_batch([("a", "1"), ("b", "1"), ("d", None)], timestamps_ms=[5, 6, 7])
    patch_log_append_time(data, 0, 4000)
    log.follower_appends.append(memoryview(data))
    put_typed(log, [("a", "2")])
    fill(log)
    assert compact(log)
    assert typed_rows(log)[:2] == [Row(1, b"b", b"1", 4000), Row(2, b"d", None, 4000)]
    log.close()


def test_a_batch_without_rows_is_none_of_columns(tmp_path):
    """It stays for its producer's sequence; nobody may look for a directory in it."""
    log = open_log(tmp_path, TYPED)
    put_typed(log, [("a", "1")], producer=(7, 0, 0))
    fill(log)
    put_typed(log, [("a", "2")])
    fill(log)
    assert compact(log)
    header = read_all(log)[0]
    assert (header.records_count, header.attributes, header.producer_id) == (0, 0, 7)
    log.close()


def test_a_schema_that_is_still_on_its_way_leaves_the_log_for_a_later_pass(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, schema=None))
    put_typed(log, [("a", "1"), ("b", "1")], version=2)
    put_typed(log, [("a", "2")], version=2)
    fill(log)
    for known in (None, FIRST):
        log.update_config(replace(CONFIG, schema=known))
        with pytest.raises(UnknownSchemaVersionError):
            compact(log)
        assert not log.cleaning.is_uncleanable
    log.update_config(TYPED)
    assert compact(log)
    assert [row.offset for row in typed_rows(log)][:2] == [1, 2]
    log.close()


@pytest.mark.parametrize("column", ["id", "name"])
def test_a_batch_with_a_column_that_nobody_can_decode_stays_as_it_is(tmp_path, column):
    """Its CRCs are right, so that leaders take it: it must not end the compaction of the log."""
    log = open_log(tmp_path, TYPED)
    put_typed(log, [("a", "1"), ("b", "1")])
    bad = with_garbage(typed_batch([("a", "2"), ("c", "2")]), column)
    patch(bad, 0, base_offset=log.log_end_offset, leader_epoch=0)
    log.follower_appends.append(memoryview(bad))
    fill(log)
    put_typed(log, [("a", "3"), ("b", "3")])
    fill(log)
    assert compact(log)
    assert not log.cleaning.is_uncleanable
    view = log.reads.read(0, max_bytes=1 << 20).view()
    headers = [header for _, header in iter_headers(view)]
    assert headers[0].records_count == 2
    assert bytes(view[: len(bad)]) == bytes(bad)
    log.close()


def with_garbage(batch, column):
    """The column's bytes are those of no Arrow message, with a right CRC."""
    header = read_header(batch)
    directory = directory_of(header, batch)
    entry = directory.column(SCHEMA.version(1).column(column).column_id)
    at = HEADER_BYTES + directory.size + entry.place
    batch[at : at + entry.stored_bytes] = bytes(entry.stored_bytes)
    entries = [
        each._replace(crc=crc32c(bytes(each.stored_bytes))) if each is entry else each
        for each in directory.entries
    ]
    batch[HEADER_BYTES : HEADER_BYTES + directory.size] = encode_directory(
        topic_id=directory.topic_id, schema_version=1, rows=2, entries=entries
    )
    seal(batch, 0, header)
    return batch


def test_replicas_that_compact_in_different_steps_end_with_the_same_bytes(tmp_path):
    def compacted(path, steps):
        log = open_log(path, TYPED)
        name = "the same long name in all rows"
        put_typed(log, [(f"k{key}", name) for key in range(40)], compression="lz4")
        fill(log)
        for last in (10, 20, 35):
            put_typed(log, [(f"k{key}", name) for key in range(last)], compression="lz4")
            fill(log)
            if steps:
                assert compact(log)
        assert compact(log) or steps
        (_, header), *_ = iter_headers(view := log.reads.read(0, max_bytes=1).view())
        assert (header.base_offset, header.records_count) == (0, 5)
        batch = bytes(view[: header.size_in_bytes])
        log.close()
        return batch

    assert compacted(tmp_path / "one", True) == compacted(tmp_path / "other", False)


RETENTION_MS = 1000
ALL_KEYS = ["", "a", "b", "\0", "a\0", "long" * 200, *map(str, range(5))]
NAMES = st.one_of(st.none(), st.text(max_size=20))
BATCH = st.tuples(
    st.just("put"),
    st.lists(st.tuples(st.sampled_from(ALL_KEYS), NAMES), min_size=1, max_size=6),
    st.sampled_from(["none", "lz4", "zstd"]),
    st.integers(0, 5000),
    st.sampled_from([1, 2]),
)
ACTION = st.one_of(
    BATCH,
    BATCH,
    BATCH,
    st.tuples(st.just("compact"), st.sampled_from([1 << 20, 96 * 3]), st.sampled_from([1, 0.7])),
    st.tuples(st.just("wait"), st.integers(1, 2 * RETENTION_MS)),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=examples(60), deadline=None)
@given(actions=st.lists(ACTION, min_size=15, max_size=30))
def test_every_key_has_the_row_of_the_model(actions):
    """Whatever is written, deleted and compacted in whatever order; see test_compactor_model."""
    config = replace(TYPED, segment_bytes=4000, segment_ms=1, delete_retention_ms=RETENTION_MS)
    now_ms = 1_000_000
    written = {}
    deleted_at: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        log = open_log(path, config)
        for action in actions:
            match action:
                case ("put", pairs, codec, time, version):
                    times = [time + number for number in range(len(pairs))]
                    base = put_typed(
                        log, pairs, compression=codec, timestamps_ms=times, version=version
                    )
                    for number, (key, name) in enumerate(pairs):
                        value = None if name is None else name.encode()
                        written[base + number] = Row(
                            base + number, key.encode(), value, times[number]
                        )
                case ("compact", buffer_bytes, share):
                    bound = int(log.log_end_offset * share)
                    compact(log, now_ms=now_ms, high_watermark=bound, buffer_bytes=buffer_bytes)
                    for row in typed_rows(log):
                        if row.value is None:
                            deleted_at.setdefault(row.offset, now_ms)
                case ("wait", milliseconds):
                    now_ms += milliseconds
                case ("reopen", clean):
                    log.close() if clean else log.close_without_flush()
                    log = open_log(
                        path,
                        config,
                        clean=clean,
                        recovery_point=log.log_end_offset if clean else 0,
                        first_dirty_offset=log.cleaning.first_dirty_offset,
                    )
            check(log, written, deleted_at, now_ms)
        log.close()


def check(log, written, deleted_at, now_ms):
    found = typed_rows(log)
    assert [row.offset for row in found] == sorted({row.offset for row in found})
    assert all(row == written[row.offset] for row in found)
    clean = [row.key for row in found if row.offset < log.cleaning.first_dirty_offset]
    assert len(set(clean)) == len(clean)
    newest = newest_of(found)
    for key, expected in newest_of(list(written.values())).items():
        if key in newest:
            assert newest[key] == expected
        else:
            assert expected.value is None
            assert now_ms >= deleted_at[expected.offset] + RETENTION_MS
