"""Deletion of old segments: R-LOG9."""

from pathlib import Path

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.log.log_config import LogConfig, load_policy
from storage_engine.log.upkeep import DeletionPolicyError
from storage_engine.tests.log.support import ManualClock, append, fill, open_log, read_all

DAY_MS = 24 * 3600 * 1000


def small(**options) -> LogConfig:
    return LogConfig(segment_bytes=500, **options)


def test_old_segments_go_and_their_files_after_the_delay(tmp_path):
    clock = ManualClock(10_000)
    log = open_log(tmp_path, small(retention_ms=1000, file_delete_delay_ms=60_000), clock=clock)
    fill(log, 30)
    end = log.log_end_offset
    assert log.retention.delete_old_segments(clock.now_ms, high_watermark=end) > 3
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (end, end, 1)
    assert log.segments.take_deleted_files(clock.now_ms) == []
    doomed = log.segments.take_deleted_files(clock.now_ms + 60_000)
    assert sorted(doomed) == sorted(log.directory.glob("*.deleted"))
    assert log.segments.take_deleted_files(clock.now_ms + 60_000) == []
    assert append(log).base_offset == end


def test_segments_that_are_not_committed_stay(tmp_path):
    log = open_log(tmp_path, small(retention_ms=1000))
    fill(log, 30)
    log.retention.delete_old_segments(10_000, high_watermark=20)
    assert 0 < log.log_start_offset <= 20
    assert log.retention.delete_old_segments(10_000, high_watermark=20) == 0


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_ends_at_the_log_start_goes_when_the_next_one_has_begun(tmp_path, policy):
    """All was deleted while it was the newest; nothing may ever move the start again."""
    config = small(retention_ms=-1, file_delete_delay_ms=0, cleanup_policy=policy)
    for drop in (
        lambda log: log.retention.advance_log_start(log.log_start_offset),
        lambda log: log.retention.delete_old_segments(0, high_watermark=log.log_end_offset),
    ):
        log = open_log(tmp_path, small())
        append(log, 2, payload=bytes(400))
        start = log.log_end_offset
        assert log.retention.advance_log_start(start)
        while log.segment_count < 3:
            append(log, payload=bytes(200))
        log.update_config(config)
        assert not drop(log)
        assert (log.log_start_offset, log.segment_count) == (start, 2)
        assert read_all(log)[0].base_offset == start
        log.delete()


def test_retention_by_size_keeps_the_newest_segments(tmp_path):
    log = open_log(tmp_path, small(retention_ms=-1, retention_bytes=1200))
    fill(log, 40)
    end = log.log_end_offset
    assert log.retention.delete_old_segments(0, high_watermark=end) > 3
    assert 1200 <= log.size_in_bytes < 1700
    assert log.log_end_offset == end
    assert read_all(log)[0].base_offset == log.log_start_offset


def test_a_compacted_log_loses_nothing_to_retention(tmp_path):
    log = open_log(tmp_path)
    fill(log, 40)
    log.update_config(small(retention_ms=1, retention_bytes=1, cleanup_policy="compact"))
    assert log.retention.delete_old_segments(1 << 50, high_watermark=log.log_end_offset) == 0
    assert log.log_start_offset == 0


def test_a_policy_of_both_deletes_too(tmp_path):
    log = open_log(tmp_path)
    fill(log, 40)
    log.update_config(small(retention_ms=1, cleanup_policy="compact,delete"))
    assert log.retention.delete_old_segments(1 << 50, high_watermark=log.log_end_offset) > 0


def test_without_limits_nothing_goes(tmp_path):
    log = open_log(tmp_path, small(retention_ms=-1, retention_bytes=-1))
    fill(log, 40)
    assert log.retention.delete_old_segments(1 << 50, high_watermark=log.log_end_offset) == 0


def test_a_damaged_time_index_does_not_make_young_segments_old(tmp_path):
    log = open_log(tmp_path, small(retention_ms=1000))
    fill(log, 40)
    end = log.log_end_offset
    log.close()
    for path in log.directory.glob("*.timeindex"):
        path.write_bytes(bytes(path.stat().st_size))
    again = open_log(tmp_path, small(retention_ms=1000), clean=True, recovery_point=end)
    assert again.retention.delete_old_segments(1900, high_watermark=end) == 0
    assert again.retention.delete_old_segments(10_000, high_watermark=end) > 3


def test_idle_producers_are_forgotten_by_our_clock_not_by_record_time(tmp_path):
    log = open_log(tmp_path, LogConfig(producer_id_expiration_ms=1000))
    append(log, producer=(9, 0, 0), timestamp_ms=5, now_ms=50_000)
    assert log.expire_producers(50_999) == 0
    assert log.expire_producers(51_000) == 1


# -- times that can't be right


@pytest.mark.parametrize("odd_ms", [-1, 1_700_000_000_000_000], ids=["none", "microseconds"])
@pytest.mark.parametrize("reopened", [False, True])
def test_one_odd_timestamp_does_not_keep_the_log_for_ever(odd_ms, reopened):
    """The log goes on getting ordinary records; also after a restart."""
    disk = SimulatedDisk(Path("/data"))
    clock = ManualClock(1_700_000_000_000)
    disk.wall_ms = clock.wall_ms
    config = LogConfig(segment_bytes=1 << 14, retention_ms=DAY_MS, segment_ms=DAY_MS)
    log = open_log(Path("/data"), config, clock=clock, disk=disk)
    for number in range(41):
        timestamp_ms = odd_ms if number == 0 else clock.now_ms
        append(log, payload=bytes(2000), timestamp_ms=timestamp_ms, now_ms=clock.now_ms)
        clock.now_ms += DAY_MS // 20
    end = log.log_end_offset
    if reopened:
        log.close()
        log = open_log(
            Path("/data"), config, clock=clock, disk=disk, clean=True, recovery_point=end
        )
    assert log.retention.delete_old_segments(clock.now_ms, end) > 0
    kept = log.log_start_offset
    assert 15 < kept < end, "only what is older than a day goes"
    assert log.retention.delete_old_segments(clock.now_ms + 2 * DAY_MS, end) > 0
    assert log.log_start_offset == end


def test_a_quiet_log_that_begins_in_the_future_rolls_by_our_clock(tmp_path):
    clock = ManualClock(1_700_000_000_000)
    log = open_log(tmp_path, LogConfig(segment_ms=DAY_MS), clock=clock)
    append(log, timestamp_ms=clock.now_ms * 1000, now_ms=clock.now_ms)
    clock.now_ms += 2 * DAY_MS
    append(log, timestamp_ms=clock.now_ms, now_ms=clock.now_ms)
    assert log.segment_count == 2


# -- a policy of the user's own


class KeepsTwo:
    """Only the two newest segments stay."""

    def count_deletable(self, segments, limits):
        return len(segments) - 2


class Fails:
    def count_deletable(self, segments, limits):
        raise ZeroDivisionError("a mistake")


class Answers:
    def __init__(self, answer=None):
        self.answer = answer

    def count_deletable(self, segments, limits):
        return self.answer


def test_a_named_policy_decides_and_never_beyond_what_is_committed(tmp_path):
    policy = load_policy(f"{__name__}:KeepsTwo")
    log = open_log(tmp_path, small(retention_ms=-1))
    fill(log, 30)
    assert log.retention.delete_old_segments(0, 20, policy) > 0
    assert log.log_start_offset <= 20
    log.retention.delete_old_segments(0, log.log_end_offset, policy)
    assert log.segment_count == 2
    end = log.log_end_offset
    log.retention.delete_old_segments(0, end, Answers(10**9))
    assert (log.log_start_offset, log.log_end_offset) == (end, end)
    assert append(log).base_offset == end


@pytest.mark.parametrize("policy", [Fails(), Answers(None), Answers("many"), Answers(1.5j)])
def test_a_policy_that_fails_deletes_nothing(tmp_path, policy):
    log = open_log(tmp_path, small(retention_ms=1000))
    fill(log, 30)
    with pytest.raises(DeletionPolicyError, match=type(policy).__name__):
        log.retention.delete_old_segments(10_000, log.log_end_offset, policy)
    assert log.log_start_offset == 0
    assert log.retention.delete_old_segments(10_000, log.log_end_offset) > 3
