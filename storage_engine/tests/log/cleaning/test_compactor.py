"""Compaction of one log: what stays, what goes, and that nobody is disturbed (R-LOG10)."""

from dataclasses import replace

import pyarrow as pa
import pytest

from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.compaction_support import (
    CONFIG,
    DAY_MS,
    Row,
    compact,
    fill_keys,
    fill_keys_from,
    newest_of,
    put,
    reopened,
    rows,
    rows_of,
)
from storage_engine.tests.log.support import check_indexes, open_log, read_all, run_search

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", CODECS)
def test_the_newest_record_of_each_key_stays_at_its_offset(tmp_path, compression):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 20, 8, compression=compression)
    before = rows(log)
    closed_end = log.cleaning._segments.active.base_offset
    end = log.log_end_offset
    assert compact(log)
    after = rows(log)
    assert newest_of(after) == newest_of(before)
    assert set(after) <= set(before)
    clean = [row for row in after if row.offset < closed_end]
    assert len({row.key for row in clean}) == len(clean)
    assert len(after) < len(before)
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    again = reopened(tmp_path, log)
    assert rows(again) == after
    again.close()
    check_indexes(tmp_path)


def test_small_segments_become_one(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 20, 8)
    compact(log)
    segments = log.segment_count
    fill_keys_from(log, 0, 10)
    compact(log)
    assert log.segment_count < segments
    assert all(segment.size <= CONFIG.segment_bytes for segment in log.cleaning._segments)
    log.close()


def test_a_batch_that_loses_records_keeps_codec_epoch_producer_and_offsets(tmp_path):
    log = open_log(tmp_path, CONFIG)
    put(
        log,
        [(b"a", bytes(300)), (b"b", bytes(300)), (b"c", bytes(300))],
        compression="zstd",
        epoch=3,
        producer=(7, 2, 0),
        timestamps_ms=[30, 10, 20],
    )
    fill_keys_from(log, 3, 30)
    first = read_all(log)[0]
    put(log, [(b"a", b"new"), (b"c", b"new")], epoch=3)
    fill_keys_from(log, 3, 30)
    assert compact(log)
    header = read_all(log)[0]
    assert header.records_count == 1
    assert header.max_timestamp == 10
    expected = first._replace(
        records_count=1, max_timestamp=10, crc=header.crc, length=header.length
    )
    assert header == expected
    assert rows(log)[0] == Row(1, b"b", bytes(300), 10)
    log.close()


def test_untouched_batches_stay_byte_for_byte(tmp_path):
    log = open_log(tmp_path, CONFIG)
    for number in range(40):
        put(log, [(b"key-%d" % number, bytes(50)), (b"other-%d" % number, b"x")])
    before = bytes(log.reads.read(0, max_bytes=1 << 20).view())
    assert compact(log)
    assert bytes(log.reads.read(0, max_bytes=1 << 20).view())[: len(before)].startswith(before)
    log.close()


def test_a_tombstone_stays_for_its_time_and_goes_after_it(tmp_path):
    log = open_log(tmp_path, CONFIG)
    put(log, [(b"a", b"1"), (b"b", b"1")], timestamps_ms=[500, 400])
    deleted = put(log, [(b"a", None), (b"b", b"2")], timestamps_ms=[900, 700])
    fill_keys_from(log, 0, 40)
    assert compact(log, now_ms=1_000_000)
    kept = [row for row in rows(log) if row.key != b"filler"]
    assert kept == [Row(deleted, b"a", None, 900), Row(deleted + 1, b"b", b"2", 700)]
    fill_keys_from(log, 0, 40)
    assert compact(log, now_ms=1_000_000 + DAY_MS - 1)
    assert [row for row in rows(log) if row.key != b"filler"] == kept
    log = reopened(tmp_path, log)
    fill_keys_from(log, 0, 40)
    assert compact(log, now_ms=1_000_000 + DAY_MS)
    assert [row for row in rows(log) if row.key != b"filler"] == kept[1:]
    log.close()


@pytest.mark.parametrize("compression", CODECS)
def test_the_times_of_records_beside_a_tombstone_stay(tmp_path, compression):
    log = open_log(tmp_path, CONFIG)
    times = [5, 1, 1 << 40, 77]
    records = [(b"a", None), (b"b", bytes(500)), (b"c", b""), (b"", None)]
    put(log, records, timestamps_ms=times, compression=compression)
    fill_keys_from(log, 0, 40)
    assert compact(log)
    assert [(row.key, row.value, row.timestamp_ms) for row in rows(log)[:4]] == [
        (key, value, time) for (key, value), time in zip(records, times, strict=True)
    ]
    log.close()


def test_headers_of_records_are_kept(tmp_path):
    log = open_log(tmp_path, CONFIG)
    headers = pa.array(
        [[("h", b"1")], [("h", b"2"), ("i", None)], []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    (batch,) = encode_batches(
        pa.array([b"1", None, b"3"], pa.binary()), pa.array([b"a", b"b", b"c"]), headers
    )
    log.leader_appends.append(batch.data, leader_epoch=0, now_ms=0)
    put(log, [(b"a", b"new")])
    fill_keys_from(log, 0, 40)
    assert compact(log)
    from storage_engine.protocol.records.record_decoder import decode_batches

    decoded = decode_batches(log.reads.read(0, max_bytes=1).view(), include_headers=True)
    assert decoded.headers.to_pylist() == [headers.to_pylist()[1], None]
    log.close()


def test_nothing_at_or_above_the_high_watermark_displaces_a_record(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10)
    before = rows(log)
    assert not compact(log, high_watermark=10)
    assert compact(log, high_watermark=60)
    after = rows(log)
    assert [row for row in after if row.offset >= 60] == before[60:]
    assert newest_of([row for row in after if row.offset < 60]) == newest_of(before[:60])
    log.close()


def test_what_is_not_on_the_medium_displaces_nothing(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10)
    assert log.compaction.plan(10, log.log_end_offset) is None
    log.flush()
    assert log.compaction.plan(10, log.log_end_offset) is not None
    log.close()


def test_many_keys_take_several_passes_in_bounded_memory(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 100, 4, size=5)
    put(log, [(b"blob", bytes(1400))] * 1)
    log.update_config(replace(CONFIG, segment_bytes=1 << 20))
    big = 2 << 20
    log.close()
    config = replace(CONFIG, segment_bytes=big)
    log = open_log(tmp_path, config, clean=True, recovery_point=log.log_end_offset)
    for number in range(3):
        for part in range(20):
            put(log, [(b"%d-%d" % (part, key), bytes(200)) for key in range(1000)])
        put(log, [(b"end", b"%d" % number)])
    log.update_config(replace(config, segment_bytes=1))
    before = rows(log, max_bytes=1 << 20)
    passes = 0
    ends = []
    while compact(log, buffer_bytes=96 * 3000):
        passes += 1
        ends.append(log.cleaning.first_dirty_offset)
    assert passes > 3
    assert ends == sorted(set(ends))
    after = rows(log, max_bytes=1 << 20)
    assert newest_of(after) == newest_of(before)
    assert len(after) < len(before) / 2
    log.close()


def test_times_are_found_after_compaction(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10)
    put(log, [(b"late", b"x")], timestamps_ms=[9000], producer=(3, 0, 0))
    put(log, [(b"late", b"y")], timestamps_ms=[1005])
    fill_keys(log, 10, 10)
    assert compact(log)
    after = rows(log)
    for timestamp in (0, 1000, 1005, 1009, 1010, 9000):
        expected = [row.offset for row in after if row.timestamp_ms >= timestamp][:1]
        found = run_search(log.reads.search_timestamp(timestamp))
        assert ([] if found is None else [found.offset]) == expected
    largest = max(row.timestamp_ms for row in after)
    found = run_search(log.reads.search_largest_timestamp())
    assert found.timestamp_ms == largest == 1009
    log.close()


def test_a_segment_of_which_nothing_is_left_stays_empty(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, segment_bytes=800))
    for number in range(30):
        put(log, [(b"a", b"%d" % number + bytes(700))])
    assert compact(log)
    assert [row.offset for row in rows(log)] == [28, 29]
    assert rows(log, 5)[0].offset == 28
    log = reopened(tmp_path, log)
    assert [row.offset for row in rows(log)] == [28, 29]
    log.close_without_flush()
    log = open_log(tmp_path, CONFIG, recovery_point=0)
    assert [row.offset for row in rows(log)] == [28, 29]
    assert log.log_start_offset == 0
    log.close()


def test_keyless_records_of_a_topic_that_was_not_compacted_before_stay(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, cleanup_policy="delete"))
    put(log, [(None, b"1"), (b"a", b"1"), (None, None)])
    put(log, [(b"a", b"2")])
    fill_keys_from(log, 0, 40)
    log.update_config(CONFIG)
    assert compact(log)
    kept = [(row.key, row.value) for row in rows(log) if row.key != b"filler"]
    assert kept == [(None, b"1"), (None, None), (b"a", b"2")]
    log.close()


def test_the_maximum_lag_rolls_the_active_segment_and_overrides_the_ratio(tmp_path):
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500)
    log = open_log(tmp_path, config)
    put(log, [(b"a", b"1")], timestamps_ms=[1000])
    put(log, [(b"a", b"2")], timestamps_ms=[1001])
    assert not compact(log, now_ms=1500)
    assert log.segment_count == 1
    assert compact(log, now_ms=1501)
    assert [row.offset for row in rows(log)] == [1]
    log.close()


def test_the_last_batch_of_a_log_stays_for_who_reads_to_its_end(tmp_path):
    config = replace(CONFIG, max_compaction_lag_ms=500, delete_retention_ms=0)
    log = open_log(tmp_path, config)
    put(log, [(b"a", b"1")])
    put(log, [(b"a", None)])
    for now_ms in (2000, 3000):
        assert compact(log, now_ms=now_ms) is (now_ms == 2000)
    put(log, [(b"b", None)])
    assert compact(log, now_ms=4000)
    assert compact(log, now_ms=5000) is False
    assert [row.offset for row in rows(log)] == [2]
    log.cleaning.first_dirty_offset = 0
    assert compact(log, now_ms=6000)
    assert rows(log) == []
    assert log.reads.read(0, max_bytes=1).end_offset == log.log_end_offset == 3
    log.close()


def test_leader_epochs_begin_where_they_began_for_who_reads_the_log_later(tmp_path):
    """Only records of the last epoch are left, and not its first."""
    log = open_log(tmp_path / "leader", CONFIG)
    begins = {}
    for epoch in (0, 3, 4, 9):
        begins[epoch] = log.log_end_offset
        for number in range(20):
            put(log, [(b"a", b"%d" % number), (b"b", bytes(100))], epoch=epoch)
    assert compact(log)
    assert rows(log)[0].offset > begins[9]
    follower = open_log(tmp_path / "follower", CONFIG)
    offset = 0
    while (piece := log.reads.read(offset, max_bytes=700)) is not None:
        follower.follower_appends.append(piece.view())
        offset = piece.end_offset
    for _ in range(2):
        for before, epoch in ((0, 3), (3, 4), (4, 9)):
            end = follower.reads.end_offset_for_epoch(before).end_offset
            assert end == begins[epoch], f"epoch {before} ends at {end}"
        follower.close_without_flush()
        follower = open_log(tmp_path / "follower", CONFIG)
    follower.close()
    log.close()


def test_keys_with_equal_upper_halves_of_their_hashes_are_told_apart():
    import numpy as np

    from storage_engine.log.cleaning.key_hashes import KeyHashes, NewestOffsets

    newest = NewestOffsets(1 << 20)
    high = np.array([5, 5, 5, 7], np.uint64)
    low = np.array([1, 2, 3, 1], np.uint64)
    newest.add(KeyHashes(high, low), np.array([10, 20, 30, 40]))
    newest.add(KeyHashes(high[:1], low[:1]), np.array([50]))
    asked = KeyHashes(
        np.array([5, 5, 5, 5, 7, 7, 9], np.uint64), np.array([3, 2, 1, 4, 1, 2, 1], np.uint64)
    )
    assert newest.newest(asked).tolist() == [30, 20, 50, -1, 40, -1, -1]
    assert len(newest) == 4


def test_headers_agree_with_what_is_read(tmp_path):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10, compression="gzip")
    compact(log)
    piece = log.reads.read(0, max_bytes=1 << 20)
    headers = [header for _, header in iter_headers(piece.view())]
    assert sum(header.records_count for header in headers) == len(rows_of(piece.view()))
    log.close()
