"""Appends of a follower: the leader's bytes, or nothing of an answer. R-REP2."""

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
)
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.log.support import (
    append,
    fill,
    join,
    make_batch,
    offsets_of,
    open_log,
    read_all,
    segment_files,
)


def test_a_follower_knows_the_duplicates_when_it_becomes_leader(tmp_path, log):
    append(log, 3, producer=(9, 0, 0))
    follower = open_log(tmp_path / "follower")
    follower.follower_appends.append(memoryview(log.reads.read(0, max_bytes=1000).read_bytes()))
    assert append(follower, 3, producer=(9, 0, 0), epoch=1).duplicate


# -- followers -------------------------------------------------------------------------------------


def test_a_follower_has_the_leaders_bytes(tmp_path, log):
    fill(log, 30)
    follower = open_log(tmp_path / "follower")
    while follower.log_end_offset < log.log_end_offset:
        piece = log.reads.read(follower.log_end_offset, max_bytes=700)
        follower.follower_appends.append(piece.view())
    assert read_all(follower) == read_all(log)
    assert follower.leader_epochs.entries == log.leader_epochs.entries


def test_a_follower_leaves_out_a_batch_that_is_cut_off(log):
    data = join(make_batch(2, epoch=0), make_batch(2, epoch=0, base_offset=2))
    assert log.follower_appends.append(data[:-1]).next_offset == 2
    assert log.follower_appends.append(data[68:]).next_offset == 4


def test_a_follower_takes_gaps_but_no_repeats(log):
    log.follower_appends.append(make_batch(2, epoch=0, base_offset=0))
    log.follower_appends.append(make_batch(2, epoch=0, base_offset=10))
    assert log.log_end_offset == 12
    with pytest.raises(CorruptRecordError, match="already ends at 12"):
        log.follower_appends.append(make_batch(2, epoch=0, base_offset=11))
    assert read_header(log.reads.read(5, max_bytes=1000).view()).base_offset == 10


def test_a_follower_refuses_damaged_batches_and_takes_none_of_the_answer(log):
    data = join(make_batch(2, epoch=0), make_batch(2, epoch=0, base_offset=2))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="batch at offset 2"):
        log.follower_appends.append(data)
    assert log.log_end_offset == 0


def test_a_follower_that_begins_within_a_batch_takes_the_whole_batch(log):
    log.truncation.truncate_fully_and_start_at(7)
    log.follower_appends.append(make_batch(5, epoch=0, base_offset=5))
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)
    assert read_header(log.reads.read(7, max_bytes=1000).view()).base_offset == 5
    with pytest.raises(OffsetOutOfRangeError):
        log.reads.read(6, max_bytes=1000)


def test_a_follower_splits_a_large_answer_over_segments(tmp_path, log):
    log.follower_appends.append(
        join(*(make_batch(epoch=0, base_offset=offset, payload=bytes(439)) for offset in range(20)))
    )
    assert offsets_of(read_all(log)) == list(range(20))
    assert all(path.stat().st_size <= 2000 for path in segment_files(tmp_path))


def test_a_follower_splits_an_answer_whose_offsets_span_more_than_an_int32(tmp_path, log):
    far = 3 << 31
    log.follower_appends.append(
        join(
            make_batch(epoch=0),
            make_batch(epoch=0, base_offset=far),
            make_batch(base_offset=far + 1, epoch=0),
        )
    )
    assert [int(path.stem) for path in segment_files(tmp_path)] == [0, far]
    assert offsets_of(read_all(log)) == [0, far, far + 1]


def test_an_offset_jump_beyond_int32_begins_a_new_segment(tmp_path, log):
    far = 3 << 31
    log.follower_appends.append(make_batch(epoch=0, base_offset=0))
    log.follower_appends.append(make_batch(epoch=0, base_offset=far))
    assert [int(path.stem) for path in segment_files(tmp_path)] == [0, far]
    assert read_header(log.reads.read(5, max_bytes=1000).view()).base_offset == far
