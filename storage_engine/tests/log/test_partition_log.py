"""Appends and reads of one log: R-LOG1 to R-LOG3, R-LOG6, R-LOG12, R-REP2."""

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaError,
    LogStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import crc_matches, read_header
from storage_engine.tests.log.support import (
    SavedOffsets,
    append,
    fill,
    join,
    make_batch,
    offsets_of,
    open_log,
    read_all,
    read_one,
    segment_files,
)


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path)
    yield log
    log.close_without_flush()


def test_a_new_log_is_empty(log):
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    assert log.reads.read(0, max_bytes=100) is None


def test_offsets_are_consecutive(log):
    assert append(log, 3)[:3] == (0, 2, 3)
    assert append(log, 2)[:3] == (3, 4, 5)
    assert offsets_of(read_all(log)) == [0, 1, 2, 3, 4]


def test_a_batch_is_stored_as_it_came_but_for_base_offset_and_epoch(log):
    append(log)
    batch = make_batch(2, payload=b"opaque bytes")
    before = bytes(batch)
    log.leader_appends.append(batch, leader_epoch=9, now_ms=0)
    stored = bytes(log.reads.read(1, max_bytes=1000).view())
    assert stored[16:] == before[16:]
    assert stored[8:12] == before[8:12]
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 9)
    assert crc_matches(stored, 0, len(stored))


def test_a_read_only_buffer_is_left_alone(log):
    batch = bytes(make_batch())
    append(log)
    log.leader_appends.append(memoryview(batch), leader_epoch=3, now_ms=0)
    assert read_header(batch).partition_leader_epoch == -1
    assert read_all(log, 1)[0].partition_leader_epoch == 3


def test_several_batches_of_one_append_get_consecutive_offsets(log):
    result = log.leader_appends.append(join(make_batch(2), make_batch(3)), leader_epoch=0, now_ms=0)
    assert result[:3] == (0, 4, 5)
    assert [header.base_offset for header in read_all(log)] == [0, 2]


def test_log_append_time_stamps_every_batch_with_a_right_crc(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    result = append(log, 2, now_ms=777, timestamp_ms=1)
    assert result.log_append_time_ms == 777
    data = read_one(log, 0).read_bytes()
    header = read_header(data)
    assert (header.max_timestamp, header.timestamp_type) == (777, 1)
    assert crc_matches(data, 0, len(data))


def test_a_batch_larger_than_the_limit_is_refused_and_the_log_unchanged(tmp_path):
    log = open_log(tmp_path, LogConfig(max_message_bytes=200))
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes = 200"):
        append(log, payload=bytes(200))
    assert log.log_end_offset == 0
    assert segment_files(tmp_path)[0].stat().st_size == 0


def test_more_than_a_segment_in_one_append_is_refused(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=150))
    with pytest.raises(RecordListTooLargeError):
        log.leader_appends.append(
            join(make_batch(), make_batch(), make_batch()), leader_epoch=0, now_ms=0
        )


def test_a_damaged_batch_is_refused(log):
    batch = make_batch()
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.leader_appends.append(batch, leader_epoch=0, now_ms=0)
    assert log.log_end_offset == 0


def test_a_read_returns_whole_batches_within_the_limit(log):
    for _ in range(4):
        append(log, payload=bytes(39))
    assert len(log.reads.read(0, max_bytes=299)) == 200
    assert len(log.reads.read(0, max_bytes=300)) == 300
    assert len(log.reads.read(0, max_bytes=10_000)) == 400


def test_the_first_batch_is_returned_even_if_it_is_larger_than_the_limit(log):
    append(log, 2, payload=bytes(500))
    piece = log.reads.read(0, max_bytes=10)
    assert len(piece) == 561
    assert piece.end_offset == 2
    assert log.reads.read(0, max_bytes=10, at_least_one=False) is None


def test_a_read_from_within_a_batch_returns_that_batch(log):
    append(log, 5)
    append(log, 5)
    assert read_header(log.reads.read(7, max_bytes=100).view()).base_offset == 5


def test_a_read_ends_at_its_bound(log):
    fill(log, 20)
    end = log.log_end_offset
    for bound in range(end + 1):
        piece = log.reads.read(0, max_bytes=1 << 20, max_offset=bound)
        if piece is None:
            assert bound < 1
            continue
        assert piece.end_offset <= bound


def test_a_bound_within_a_batch_leaves_that_batch_out(log):
    append(log, 5)
    append(log, 5)
    assert log.reads.read(0, max_bytes=1000, max_offset=7).end_offset == 5
    assert log.reads.read(5, max_bytes=1000, max_offset=7) is None
    assert log.reads.read(0, max_bytes=1000, max_offset=3) is None


def test_a_read_at_the_end_returns_nothing(log):
    append(log, 3)
    assert log.reads.read(3, max_bytes=100) is None


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_the_log_names_the_valid_range(log, offset):
    append(log, 3)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[0, 3\)") as raised:
        log.reads.read(offset, max_bytes=100)
    assert (raised.value.log_start_offset, raised.value.log_end_offset) == (0, 3)


def test_large_slices_are_views_of_the_file(log):
    payload = bytes(range(256)) * 800
    log.update_config(LogConfig())
    append(log)
    append(log, payload=payload)
    piece = log.reads.read(1, max_bytes=1 << 20)
    view = piece.view()
    assert view.readonly
    assert bytes(view[61:]) == payload
    assert piece.read_bytes() == view


def test_a_closed_log_takes_nothing(log):
    log.close()
    with pytest.raises(LogStorageError, match="is closed"):
        append(log)


def test_an_append_of_an_older_leader_epoch_is_refused(log):
    append(log, epoch=3)
    with pytest.raises(KafkaError, match="leader epoch 2 is older than epoch 3"):
        append(log, epoch=2)
    assert log.log_end_offset == 1


def test_epochs_begin_where_their_leaders_begin_to_write(log):
    append(log, 2, epoch=1)
    log.leader_appends.start_epoch(4)
    append(log, 3, epoch=4)
    append(log, 1, epoch=6)
    assert log.leader_epochs.entries == ((1, 0), (4, 2), (6, 5))
    assert log.reads.end_offset_for_epoch(1) == (1, 2)
    assert log.reads.end_offset_for_epoch(5) == (4, 5)
    assert log.reads.end_offset_for_epoch(6) == (6, 6)


# -- producers -------------------------------------------------------------------------------------


def test_a_repeated_batch_is_not_stored_again(log):
    first = append(log, 3, producer=(9, 0, 0))
    again = append(log, 3, producer=(9, 0, 0))
    assert again.duplicate and not first.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.log_end_offset == 3


def test_a_gap_in_the_sequence_is_refused(log):
    append(log, 3, producer=(9, 0, 0))
    with pytest.raises(OutOfOrderSequenceError):
        append(log, 1, producer=(9, 0, 4))
    assert log.log_end_offset == 3


def test_a_fenced_producer_is_refused(log):
    append(log, producer=(9, 2, 0))
    with pytest.raises(InvalidProducerEpochError):
        append(log, producer=(9, 1, 1))


def test_several_batches_of_one_producer_in_one_append(log):
    def batches() -> memoryview:
        return join(make_batch(2, producer=(9, 0, 0)), make_batch(3, producer=(9, 0, 2)))

    assert log.leader_appends.append(batches(), leader_epoch=0, now_ms=0).next_offset == 5
    again = log.leader_appends.append(batches(), leader_epoch=0, now_ms=0)
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (0, 4)
    append(log, 1, producer=(9, 0, 5))


def test_an_append_that_is_partly_a_duplicate_is_refused(log):
    append(log, 2, producer=(9, 0, 0))
    mixed = join(make_batch(2, producer=(9, 0, 0)), make_batch(3, producer=(9, 0, 2)))
    with pytest.raises(InvalidRecordError, match="some of the batches"):
        log.leader_appends.append(mixed, leader_epoch=0, now_ms=0)
    assert log.log_end_offset == 2


def test_a_gap_between_batches_of_one_append_changes_nothing(log):
    bad = join(make_batch(2, producer=(9, 0, 0)), make_batch(3, producer=(9, 0, 3)))
    with pytest.raises(OutOfOrderSequenceError):
        log.leader_appends.append(bad, leader_epoch=0, now_ms=0)
    assert append(log, 2, producer=(9, 0, 0)).base_offset == 0


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


def test_an_offset_jump_beyond_int32_begins_a_new_segment(tmp_path, log):
    far = 3 << 31
    log.follower_appends.append(make_batch(epoch=0, base_offset=0))
    log.follower_appends.append(make_batch(epoch=0, base_offset=far))
    assert [int(path.stem) for path in segment_files(tmp_path)] == [0, far]
    assert read_header(log.reads.read(5, max_bytes=1000).view()).base_offset == far


# -- truncation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 2, 7, 20, 29])
def test_truncation_keeps_exactly_what_is_below(log, keep):
    fill(log, 30)
    headers = read_all(log)
    assert log.truncation.truncate_to(headers[keep].base_offset) == headers[keep].base_offset
    assert read_all(log) == headers[:keep]
    fill(log, 5)
    assert read_all(log)[:keep] == headers[:keep]
    assert offsets_of(read_all(log)) == list(range(log.log_end_offset))


def test_truncation_within_a_batch_drops_that_batch(log):
    append(log, 5)
    append(log, 5)
    assert log.truncation.truncate_to(7) == 5
    assert log.log_end_offset == 5


def test_truncation_beyond_the_end_changes_no_record_but_drops_idle_epochs(log):
    append(log, 5, epoch=1)
    log.leader_appends.start_epoch(3)
    assert log.truncation.truncate_to(5) == 5
    assert log.leader_epochs.entries == ((1, 0),)


def test_truncation_to_the_start_empties_the_log(log):
    fill(log, 10)
    log.truncation.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    append(log)
    assert offsets_of(read_all(log)) == [0]


def test_truncation_drops_the_epochs_and_producers_above(log):
    append(log, 2, epoch=1, producer=(9, 0, 0))
    append(log, 2, epoch=2, producer=(9, 0, 2))
    log.truncation.truncate_to(2)
    assert log.leader_epochs.entries == ((1, 0),)
    assert append(log, 2, epoch=3, producer=(9, 0, 2)).base_offset == 2


def test_truncation_over_several_rolls_restores_the_producers(log):
    for number in range(60):
        append(log, producer=(9, 0, number), payload=bytes(100))
    assert log.segment_count > 3
    log.truncation.truncate_to(10)
    assert append(log, producer=(9, 0, 9), payload=bytes(100)).duplicate
    assert append(log, producer=(9, 0, 10), payload=bytes(100)).base_offset == 10


def test_a_slice_taken_before_a_truncation_says_so_instead_of_giving_other_bytes(log):
    fill(log, 10)
    piece = log.reads.read(log.log_end_offset - 1, max_bytes=1000)
    log.truncation.truncate_to(3)
    with pytest.raises(LogStorageError, match="was truncated"):
        piece.view()


def test_truncation_reports_a_lower_recovery_point(tmp_path):
    lowered = []
    log = open_log(tmp_path, checkpoints=SavedOffsets(lambda: lowered.append(1)))
    fill(log, 10)
    log.flush()
    end = log.log_end_offset
    assert log.recovery_point == end
    log.truncation.truncate_to(5)
    assert log.recovery_point == log.log_end_offset < end
    assert lowered


def test_advancing_the_log_start_hides_records_and_drops_whole_segments(tmp_path, log):
    fill(log, 60)
    before = log.segment_count
    assert log.retention.advance_log_start(70)
    assert not log.retention.advance_log_start(70)
    assert log.log_start_offset == 70
    assert log.segment_count < before
    with pytest.raises(OffsetOutOfRangeError, match=r"\[70,"):
        log.reads.read(69, max_bytes=100)
    assert 70 in offsets_of(read_all(log, 70)[:1])
    with pytest.raises(OffsetOutOfRangeError):
        log.retention.advance_log_start(log.log_end_offset + 1)


def test_readers_of_deleted_segments_go_on(log):
    fill(log, 40)
    piece = log.reads.read(0, max_bytes=1000)
    expected = piece.read_bytes()
    log.retention.advance_log_start(log.log_end_offset)
    assert piece.view() == expected


def test_a_duplicate_tells_the_append_time_of_the_first_time(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, 2, producer=(9, 0, 0), now_ms=777)
    assert append(log, 2, producer=(9, 0, 0), now_ms=888).log_append_time_ms == 777


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
