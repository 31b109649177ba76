"""All logs of a broker together: R-LOG1, R-LOG8, R-CTL6, R-REP10."""

import time
from typing import Any

import pytest

from storage_engine.core.errors import StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.log_config import LogConfig
from storage_engine.log.log_manager import LogManager
from storage_engine.log.maintenance import LogMaintenance
from storage_engine.tests.log.support import SMALL, ManualClock, append, fill, read_all

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Inline:
    """Background work at once, or when told."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.waiting: list[Any] = []

    def submit(self, work, on_done, on_error):
        self.waiting.append((work, on_done, on_error))
        if self.at_once:
            self.run()

    def run(self):
        while self.waiting:
            work, on_done, on_error = self.waiting.pop(0)
            try:
                result = work()
            except OSError as error:
                on_error(error)
            else:
                on_done(result)


def open_manager(*folders, load: bool = True, **options) -> LogManager:
    options.setdefault("clock", ManualClock())
    manager = LogManager(list(folders), SMALL, broker_id=1, **options)
    if load:
        manager.load("cluster")
    return manager


def test_logs_are_there_again_after_a_stop_in_order(tmp_path):
    manager = open_manager(tmp_path)
    assert manager.is_new
    fill(manager.get_or_create(A0), 30)
    fill(manager.get_or_create(B0), 5)
    ends = {tp: log.log_end_offset for tp, log in manager.logs.items()}
    manager.close()
    again = open_manager(tmp_path)
    assert (again.is_new, again.was_clean_shutdown, again.same_boot) == (False, True, True)
    assert again.recovered_bytes == 0
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == ends
    assert again.get(A1) is None


def test_a_killed_manager_recovers(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    headers = read_all(manager.logs[A0])
    manager.abandon()
    again = open_manager(tmp_path)
    assert not again.was_clean_shutdown
    assert again.recovered_bytes > 0
    assert read_all(again.logs[A0]) == headers


def test_recovery_begins_at_the_checkpointed_recovery_point(tmp_path):
    manager = open_manager(tmp_path)
    log = manager.get_or_create(A0)
    fill(log, 60)
    log.flush()
    manager.write_recovery_points()
    manager.abandon()
    again = open_manager(tmp_path)
    assert 0 < again.recovered_bytes < again.logs[A0].size_in_bytes


def test_a_damaged_recovery_point_checkpoint_means_checking_everything(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 60)
    manager.logs[A0].flush()
    manager.write_recovery_points()
    manager.abandon()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    again = open_manager(tmp_path)
    assert again.recovered_bytes == again.logs[A0].size_in_bytes


def test_new_partitions_go_to_the_folder_with_the_fewest(tmp_path):
    manager = open_manager(tmp_path / "x", tmp_path / "y")
    for partition in range(6):
        manager.get_or_create(TopicPartition("t", partition))
    manager.close()
    assert len(list((tmp_path / "x").glob("t-*"))) == len(list((tmp_path / "y").glob("t-*"))) == 3
    assert len(open_manager(tmp_path / "y", tmp_path / "x").logs) == 6


def test_a_partition_in_two_folders_is_an_error_that_names_both(tmp_path):
    (tmp_path / "x" / "a-0").mkdir(parents=True)
    (tmp_path / "y" / "a-0").mkdir(parents=True)
    with pytest.raises(StorageError, match="partition a-0 is in two data folders"):
        open_manager(tmp_path / "x", tmp_path / "y")


def test_a_folder_that_cannot_be_used_leaves_the_others_unlocked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        open_manager(tmp_path / "x", tmp_path / "file")
    open_manager(tmp_path / "x")


def test_a_deleted_partition_is_gone_and_may_come_anew(tmp_path):
    background = Inline(at_once=False)
    manager = open_manager(tmp_path, background=background)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].flush()
    manager.write_recovery_points()
    manager.checkpoint_high_watermarks({A0: 20})
    manager.delete(A0)
    assert manager.get(A0) is None
    assert not (tmp_path / "a-0").exists()
    log = manager.get_or_create(A0)
    assert (log.log_end_offset, log.recovery_point, manager.high_watermark(A0)) == (0, 0, 0)
    append(log)
    background.run()
    assert not list(tmp_path.glob("*-delete"))
    manager.abandon()
    again = open_manager(tmp_path)
    assert again.logs[A0].log_end_offset == 1
    assert again.logs[A0].recovered_bytes > 0


def test_leftovers_of_deletions_are_removed_at_start(tmp_path):
    (tmp_path / "a-0.0123-delete").mkdir()
    (tmp_path / "a-0.0123-delete" / "x.log").write_text("x")
    manager = open_manager(tmp_path)
    assert manager.logs == {}
    assert not (tmp_path / "a-0.0123-delete").exists()


def test_the_longest_topic_name_can_be_deleted(tmp_path):
    manager = open_manager(tmp_path)
    long = TopicPartition("x" * 249, 12345)
    manager.get_or_create(long)
    manager.delete(long)
    assert manager.logs == {}
    assert not list(tmp_path.glob("x*"))


def test_high_watermarks_survive_and_never_exceed_the_log(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    fill(manager.get_or_create(A1), 30)
    end = manager.logs[A0].log_end_offset
    manager.checkpoint_high_watermarks({A0: 7, A1: end + 100, B0: 3})
    manager.close()
    again = open_manager(tmp_path)
    assert again.high_watermark(A0) == 7
    assert again.high_watermark(A1) == end
    assert again.high_watermark(B0) == 0


def test_the_log_start_survives(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].advance_log_start(9)
    manager.close()
    assert open_manager(tmp_path).logs[A0].log_start_offset == 9


def test_truncation_below_the_recovery_point_is_on_disk_before_the_next_append(tmp_path):
    manager = open_manager(tmp_path)
    log = manager.get_or_create(A0)
    fill(log, 60)
    log.flush()
    manager.write_recovery_points()
    log.truncate_to(10)
    checkpoint = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert checkpoint == f"0\n1\na 0 {log.log_end_offset}\n"


def test_each_topic_has_its_settings(tmp_path):
    def config_of(topic: str) -> LogConfig:
        return LogConfig(max_message_bytes=100 if topic == "a" else 200)

    manager = open_manager(tmp_path, config_of=config_of)
    assert manager.get_or_create(A0).config.max_message_bytes == 100
    assert manager.get_or_create(B0, LogConfig(max_message_bytes=5)).config.max_message_bytes == 5
    manager.update_topic_config("a", LogConfig(max_message_bytes=7))
    assert manager.logs[A0].config.max_message_bytes == 7
    assert manager.logs[B0].config.max_message_bytes == 5


def test_a_thousand_cleanly_closed_partitions_open_quickly(tmp_path):
    manager = open_manager(tmp_path)
    for partition in range(1000):
        append(manager.get_or_create(TopicPartition("t", partition)))
    for log in manager.logs.values():
        log._flush_state.recovery_point = 1  # as if flushed: 1,000 fsyncs are not what is tested
        log._segments.active.seal()
    manager.close()
    begin = time.monotonic()
    again = open_manager(tmp_path)
    assert time.monotonic() - begin < 5
    assert len(again.logs) == 1000
    assert all(log.log_end_offset == 1 for log in again.logs.values())
    again.close()


# -- maintenance -----------------------------------------------------------------------------------


class Maintained:
    """A manager with its periodic work."""

    def __init__(self, path, config: LogConfig = SMALL, *, at_once: bool = True) -> None:
        self.clock = ManualClock()
        self.background = Inline(at_once=at_once)
        self.failures: list[Any] = []
        self.manager = LogManager([path], config, broker_id=1, clock=self.clock)
        self.manager.load("cluster")
        self.log = self.manager.get_or_create(A0)
        self.maintenance = LogMaintenance(
            self.manager,
            clock=self.clock,
            background=self.background,
            high_watermark_of=lambda tp: self.manager.logs[tp].log_end_offset,
            on_failure=lambda tp, error: self.failures.append((tp, error)),
        )


def test_finished_segments_are_flushed_in_the_background(tmp_path):
    world = Maintained(tmp_path, at_once=False)
    fill(world.log, 60)
    end = world.log.log_end_offset
    world.maintenance.tick()
    world.maintenance.tick()
    assert len(world.background.waiting) == 1
    fill(world.log, 3)
    world.background.run()
    assert world.log.recovery_point == end


def test_flush_messages_bounds_what_is_not_flushed(tmp_path):
    world = Maintained(tmp_path, LogConfig(flush_messages=5))
    append(world.log, 4)
    world.maintenance.tick()
    assert world.log.recovery_point == 0
    append(world.log, 1)
    world.maintenance.tick()
    assert world.log.recovery_point == 5


def test_flush_ms_bounds_how_long_it_is_not_flushed(tmp_path):
    world = Maintained(tmp_path, LogConfig(flush_ms=1000))
    append(world.log)
    world.maintenance.tick()
    assert world.log.recovery_point == 0
    world.clock.now_ms += 1000
    world.maintenance.tick()
    assert world.log.recovery_point == 1


def test_a_flush_that_a_truncation_overtook_counts_for_nothing(tmp_path):
    world = Maintained(tmp_path, at_once=False)
    fill(world.log, 60)
    world.maintenance.tick()
    world.log.truncate_to(4)
    fill(world.log, 60)
    world.background.run()
    assert world.log.recovery_point == 0


def test_a_failed_flush_is_reported_with_its_partition(tmp_path):
    world = Maintained(tmp_path, at_once=False)
    fill(world.log, 60)
    world.maintenance.tick()
    _, _, on_error = world.background.waiting.pop()
    failure = OSError(5, "Input/output error")
    on_error(failure)
    assert world.failures == [(A0, failure)]
    assert world.log.recovery_point == 0


def test_retention_deletes_old_segments_and_their_files_after_the_delay(tmp_path):
    config = LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=60_000)
    world = Maintained(tmp_path, config)
    fill(world.log, 30)
    world.clock.now_ms = 10_000_000
    world.maintenance.tick()
    assert world.log.log_start_offset == world.log.log_end_offset
    assert world.log.segment_count == 1
    assert len(list(tmp_path.glob("a-0/*.deleted"))) > 3
    world.clock.now_ms += 60_000
    world.maintenance.tick()
    assert list(tmp_path.glob("a-0/*.deleted")) == []
    assert append(world.log).base_offset == world.log.log_start_offset


def test_retention_by_size_keeps_the_newest_segments(tmp_path):
    world = Maintained(tmp_path, LogConfig(segment_bytes=500, retention_bytes=1200))
    fill(world.log, 40)
    end = world.log.log_end_offset
    world.maintenance.apply_retention()
    assert 1200 <= world.log.size_in_bytes < 1700
    assert world.log.log_end_offset == end


def test_a_compacted_log_loses_nothing_to_retention(tmp_path):
    world = Maintained(
        tmp_path, LogConfig(segment_bytes=500, retention_ms=1, cleanup_policy="compact")
    )
    fill(world.log, 40)
    world.clock.now_ms = 10_000_000
    assert world.maintenance.apply_retention() == 0
    assert world.log.log_start_offset == 0


def test_checkpoints_are_written_from_time_to_time(tmp_path):
    world = Maintained(tmp_path)
    fill(world.log, 60)
    world.maintenance.tick()
    world.clock.now_ms += 60_000
    world.maintenance.tick()
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert text.startswith("0\n1\na 0 ")
    assert not text.endswith(" 0\n")


def test_idle_producers_are_forgotten(tmp_path):
    world = Maintained(tmp_path, LogConfig(producer_id_expiration_ms=1000))
    append(world.log, producer=(9, 0, 0), timestamp_ms=5, now_ms=world.clock.now_ms)
    world.clock.now_ms += 999
    world.maintenance.apply_retention()
    assert world.log.producer_state.get(9) is not None
    world.clock.now_ms += 1
    world.maintenance.apply_retention()
    assert world.log.producer_state.get(9) is None


def test_a_manager_that_never_loaded_leaves_the_folder_as_it_was(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].flush()
    manager.write_recovery_points()
    manager.abandon()
    checkpoint = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    stillborn = open_manager(tmp_path, load=False)
    stillborn.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == checkpoint
    again = open_manager(tmp_path)
    assert not again.was_clean_shutdown
    assert again.recovered_bytes > 0


def test_a_failed_log_is_reported_once_and_left_alone(tmp_path):
    world = Maintained(tmp_path, at_once=False)
    fill(world.log, 60)
    world.maintenance.tick()
    _, _, on_error = world.background.waiting.pop()
    on_error(OSError(5, "Input/output error"))
    on_error(OSError(5, "Input/output error"))
    world.maintenance.tick()
    assert len(world.failures) == 1
    assert world.background.waiting == []


def test_a_flush_of_a_log_deleted_meanwhile_is_no_failure(tmp_path):
    world = Maintained(tmp_path, at_once=False)
    fill(world.log, 60)
    world.maintenance.tick()
    world.manager.delete(A0)
    world.background.run()
    assert world.failures == []
