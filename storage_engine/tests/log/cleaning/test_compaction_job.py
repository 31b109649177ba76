"""Compaction beside writers, readers, followers, truncation and retention: nobody is disturbed
(R-LOG10)."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import InvalidRecordError, OutOfOrderSequenceError
from storage_engine.core.retained.producer_state import ANY_FORGOTTEN
from storage_engine.tests.log.compaction_support import (
    CONFIG,
    compact,
    files_of,
    fill_keys,
    fill_keys_from,
    newest_of,
    put,
    reopened,
    rows,
    rows_of,
)
from storage_engine.tests.log.support import (
    ManualClock,
    SavedOffsets,
    open_log,
    read_all,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def test_idempotent_producers_go_on_after_compaction_and_lost_snapshots(tmp_path):
    log = open_log(tmp_path, CONFIG)
    for number in range(8):
        put(log, [(b"a", bytes(100)), (b"b", bytes(100))], producer=(9, 1, 2 * number))
    fill_keys_from(log, 0, 5)
    put(log, [(b"a", b""), (b"b", b"")])
    fill_keys_from(log, 0, 40)
    assert compact(log)
    assert compact(log) is False
    empty = [header for header in read_all(log) if not header.records_count]
    assert [header.base_sequence for header in empty] == [6, 8, 10, 12, 14]
    assert all(header.producer_id == 9 for header in empty)
    end = log.log_end_offset
    log = reopened(tmp_path, log)
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    log = reopened(tmp_path, log)
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    log.close_without_flush()
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=end)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, [(b"a", b"")], producer=(9, 1, 17))
    again = put(log, [(b"a", bytes(100)), (b"b", bytes(100))], producer=(9, 1, 10))
    assert again == 10
    assert put(log, [(b"a", b"")], producer=(9, 1, 16)) == end
    log.close()


def test_readers_under_way_keep_their_slices(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, segment_bytes=200_000))
    for number in range(12):
        put(log, [(b"a", b"%d" % number + bytes(99_000))])
    small = log.reads.read(0, max_bytes=1)
    large = log.reads.read(0, max_bytes=200_000)
    other = log.reads.read(2, max_bytes=200_000)
    expected = rows_of(other.view())
    assert compact(log)
    assert [row.offset for row in rows_of(small.view())] == [0]
    assert [row.offset for row in rows_of(large.view())] == [0, 1]
    assert compact(log) is False
    assert rows_of(other.view()) == expected
    doomed = log.segments.take_deleted_files(1 << 60)
    assert doomed and all(path.exists() for path in doomed)
    log.close()


def test_the_deleted_files_of_two_passes_do_not_mix(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, file_delete_delay_ms=60_000))
    fill_keys(log, 5, 10)
    slice_of_first = log.reads.read(0, max_bytes=400)
    expected = rows_of(slice_of_first.view())
    for segment in log.cleaning._segments:
        segment.close()
    compact(log)
    fill_keys(log, 5, 10)
    compact(log)
    assert rows_of(slice_of_first.view()) == expected
    log.close()


def test_followers_take_over_a_compacted_log(tmp_path):
    leader = open_log(tmp_path / "leader", CONFIG)
    fill_keys(leader, 7, 12)
    assert compact(leader)
    follower = open_log(tmp_path / "follower", CONFIG)
    position = 0
    while (piece := leader.reads.read(position, max_bytes=900)) is not None:
        follower.follower_appends.append(memoryview(bytearray(piece.view())))
        position = follower.log_end_offset
    assert rows(follower) == rows(leader)
    assert follower.log_end_offset == leader.log_end_offset
    assert follower.producer_state.forgotten_to == ANY_FORGOTTEN
    compact(follower)
    assert newest_of(rows(follower)) == newest_of(rows(leader))
    follower.close()
    leader.close()


def test_truncation_stops_a_pass_and_makes_the_log_dirty_again(tmp_path):
    lowered = []
    log = open_log(tmp_path, CONFIG, checkpoints=SavedOffsets(lambda: lowered.append(1)))
    fill_keys(log, 10, 10)
    assert compact(log)
    clean_to = log.cleaning.first_dirty_offset
    before = rows(log)
    log.truncation.truncate_to(clean_to - 5)
    assert log.cleaning.first_dirty_offset <= clean_to - 5
    assert lowered
    assert rows(log) == [row for row in before if row.offset < log.log_end_offset]
    fill_keys(log, 10, 10)
    log.flush()
    plan = log.compaction.plan(0, log.log_end_offset)
    job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=0)
    job.work()
    log.cleaning.advance(job)
    job.work()
    log.truncation.truncate_to(clean_to)
    kept = rows(log)
    assert kept
    assert not log.cleaning.advance(job)
    assert rows(log) == kept
    assert not any(name.endswith(".cleaned") for name in files_of(log))
    log.close()


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_stop_at_any_step_leaves_the_same_records(tmp_path, steps):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10)
    log.flush()
    expected = newest_of(rows(log))
    plan = log.compaction.plan(0, log.log_end_offset)
    job = log.compaction.begin(plan, keys_max_bytes=1 << 20, now_ms=0)
    for _ in range(steps):
        job.work()
        if not log.cleaning.advance(job):
            break
    log.retention.advance_log_start(1)
    assert newest_of(rows(log)) == expected
    log = reopened(tmp_path, log)
    assert newest_of(rows(log)) == expected
    assert not any(name.endswith((".cleaned", ".swap")) for name in files_of(log))
    log.close()


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_log_start_that_advances_during_a_pass_takes_no_more_than_it_says(tmp_path, steps):
    log = open_log(tmp_path, CONFIG)
    for number in range(60):
        put(log, [(b"key-%d" % (number % 5), b"x"), (b"only-%d" % number, bytes(10))])
    compact(log)
    for number in range(20):
        put(log, [(b"key-%d" % number, bytes(100))])
    log.flush()
    before = rows(log)
    job = log.compaction.begin(log.compaction.plan(0, 1 << 40), keys_max_bytes=1 << 20, now_ms=0)
    for _ in range(steps):
        job.work()
        if not log.cleaning.advance(job):
            break
    log.retention.advance_log_start(41)
    found = rows(log)
    assert {row.key for row in before if row.offset >= 41} == {row.key for row in found}
    assert min(row.offset for row in found) == 41
    log.close()


def test_a_damaged_batch_leaves_the_log_alone(tmp_path, caplog):
    log = open_log(tmp_path, CONFIG)
    fill_keys(log, 10, 10)
    log.flush()
    before = bytes((log.directory / f"{0:020d}.log").read_bytes())
    damaged = bytearray(before)
    damaged[100] ^= 1
    (log.directory / f"{0:020d}.log").write_bytes(damaged)
    names = files_of(log)
    with pytest.raises(Exception, match="CRC does not match"):
        compact(log)
    assert "not compacted any more, it is damaged" in caplog.text
    assert files_of(log) == names
    assert not compact(log)
    assert (log.directory / f"{0:020d}.log").read_bytes() == damaged
    put(log, [(b"still", b"written")])
    assert rows(log, log.log_end_offset - 1)[0].key == b"still"
    log.close()


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("count", [1, 3, 200])
def test_a_record_without_a_key_is_refused(tmp_path, compression, count):
    log = open_log(tmp_path, replace(CONFIG, segment_bytes=1 << 20))
    keyed = [(b"k%d" % number, b"v") for number in range(count)]
    assert put(log, keyed, compression=compression) == 0
    with pytest.raises(InvalidRecordError, match="no key"):
        put(log, [*keyed, (None, b"v")], compression=compression)
    assert log.log_end_offset == count
    plain = open_log(tmp_path / "plain", replace(CONFIG, cleanup_policy="delete"))
    assert put(plain, [(None, b"v")]) == 0
    plain.close()
    log.close()


def test_records_that_cannot_be_decoded_are_refused(tmp_path):
    from storage_engine.tests.log.support import make_batch

    log = open_log(tmp_path, CONFIG)
    for payload in (b"payload", b"", b"\xff" * 40, b"\x0e\0\0\0\1\1\0\0"):
        for attributes in (0, 4):
            with pytest.raises(InvalidRecordError):
                log.leader_appends.append(
                    make_batch(payload=payload, attributes=attributes), leader_epoch=0, now_ms=0
                )
    assert log.log_end_offset == 0
    log.close()


def test_retention_goes_on_in_a_log_that_is_compacted_and_deleted(tmp_path):
    clock = ManualClock()
    config = replace(CONFIG, cleanup_policy="compact,delete", retention_ms=100)
    log = open_log(tmp_path, config, clock=clock)
    fill_keys(log, 5, 20)
    assert compact(log)
    fill_keys(log, 5, 20)
    assert log.retention.delete_old_segments(10_000, log.log_end_offset) > 0
    assert log.log_start_offset > 0
    assert all(row.offset >= log.log_start_offset for row in rows(log))
    log.close()
