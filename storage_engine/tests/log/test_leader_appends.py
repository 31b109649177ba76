"""Appends of a leader: what is stored, and what is refused and changes nothing. R-LOG1, R-LOG6,
R-LOG12."""

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import crc_matches, read_header
from storage_engine.tests.log.support import (
    append,
    join,
    make_batch,
    offsets_of,
    open_log,
    read_all,
    read_one,
    segment_files,
)


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


def test_a_duplicate_tells_the_append_time_of_the_first_time(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, 2, producer=(9, 0, 0), now_ms=777)
    assert append(log, 2, producer=(9, 0, 0), now_ms=888).log_append_time_ms == 777
