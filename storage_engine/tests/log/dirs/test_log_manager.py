"""All logs of a broker together: R-LOG1, R-LOG8, R-CTL6, R-REP10."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import LogStorageError, StorageError
from storage_engine.core.ids import TAIL_LOST_NOW, TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.log_config import LogConfig
from storage_engine.log.state.checkpoints import read_offsets
from storage_engine.tests.log.support import (
    SMALL,
    ManualClock,
    append,
    fill,
    join,
    make_batch,
    new_log_manager,
    read_all,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Later:
    """Background work that is done when told."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def submit(self, work, on_done, on_error):
        self.waiting.append((work, on_done))

    def run(self):
        for work, on_done in self.waiting:
            on_done(work())
        self.waiting.clear()


def open_manager(*log_dirs, load: bool = True, **options) -> LogManager:
    options.setdefault("clock", ManualClock())
    manager = new_log_manager(list(log_dirs), SMALL, broker_id=1, **options)
    if load:
        manager.load("cluster")
    return manager


def test_logs_are_there_again_after_a_stop_in_order(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    fill(manager.get_or_create(B0), 5)
    ends = {tp: log.log_end_offset for tp, log in manager.logs.items()}
    manager.close()
    again = open_manager(tmp_path)
    assert again.dirs.were_shut_down_clean
    assert again.dirs.tail_lost_epoch == TAIL_LOST_NOW, "it was new, and never registered"
    assert again.recovered_bytes == 0
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == ends
    assert again.get(A1) is None


def test_a_killed_manager_recovers(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    headers = read_all(manager.logs[A0])
    manager.abandon()
    again = open_manager(tmp_path)
    assert not again.dirs.were_shut_down_clean
    assert again.recovered_bytes > 0
    assert read_all(again.logs[A0]) == headers


def test_what_is_appended_after_a_log_lost_its_end_does_not_count_as_flushed():
    """Killed while it was truncated fully, a log has no files; its checkpoint knows another one."""
    disk = SimulatedDisk(Path("/data"))
    manager = open_manager(Path("/data"), disk=disk)
    log = manager.get_or_create(A0)
    fill(log, 30)
    log.flush()
    manager.write_recovery_points()
    directory, end = log.directory, log.log_end_offset
    manager.abandon()
    for name in disk.list_names(directory):
        disk.remove(directory / name)
    again = open_manager(Path("/data"), disk=disk)
    fill(again.logs[A0], 30)
    again.abandon()
    last = open_manager(Path("/data"), disk=disk)
    assert last.logs[A0].log_end_offset == end
    assert last.logs[A0].recovery_point == 0


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


def test_a_damaged_cleaner_checkpoint_takes_no_gap_for_lost_records(tmp_path, caplog):
    manager = open_manager(tmp_path)
    for tp in (A0, B0):
        log = manager.get_or_create(tp)
        log.follower_appends.append(join(make_batch(2), make_batch(1, base_offset=7)))
    manager.abandon()
    path = tmp_path / "cleaner-offset-checkpoint"
    data = path.read_bytes()
    assert data.count(b" 0 1 ") == 2
    path.write_bytes(data.replace(b"a 0 1 ", b"a 0 0 "))
    again = open_manager(tmp_path)
    assert "'a 0 0 " in caplog.text and "does not agree with its check" in caplog.text
    assert [again.logs[tp].log_end_offset for tp in (A0, B0)] == [8, 8]
    again.close()
    caplog.clear()
    last = open_manager(tmp_path)
    assert [last.logs[tp].log_end_offset for tp in (A0, B0)] == [8, 8]
    assert "damaged" not in caplog.text


def test_new_partitions_go_to_the_log_dir_with_the_fewest(tmp_path):
    manager = open_manager(tmp_path / "x", tmp_path / "y")
    for partition in range(6):
        manager.get_or_create(TopicPartition("t", partition))
    manager.close()
    assert len(list((tmp_path / "x").glob("t-*"))) == len(list((tmp_path / "y").glob("t-*"))) == 3
    assert len(open_manager(tmp_path / "y", tmp_path / "x").logs) == 6


def test_a_partition_in_two_log_dirs_is_an_error_that_names_both(tmp_path):
    (tmp_path / "x" / "a-0").mkdir(parents=True)
    (tmp_path / "y" / "a-0").mkdir(parents=True)
    with pytest.raises(StorageError, match="partition a-0 is in two log dirs"):
        open_manager(tmp_path / "x", tmp_path / "y")


def test_a_log_dir_that_must_not_be_used_leaves_the_others_unlocked(tmp_path):
    new_log_manager([tmp_path / "b"], SMALL, broker_id=2, clock=ManualClock()).close()
    manager = new_log_manager([tmp_path / "b"], SMALL, broker_id=2, clock=ManualClock())
    with pytest.raises(StorageError, match="in use"):
        open_manager(tmp_path / "a", tmp_path / "b")
    manager.close()
    open_manager(tmp_path / "a").close()


def test_a_log_dir_that_can_not_be_used_is_left_out_while_another_can(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file can't be written"):
        open_manager(tmp_path / "file")
    manager = open_manager(tmp_path / "file", tmp_path / "a")
    assert manager.dirs.working_paths == [tmp_path / "a"]
    manager.close()


def test_without_a_log_dir_no_log_is_made_that_may_be_in_it(tmp_path):
    disk = SimulatedDisk(tmp_path)
    manager = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    for tp in (A0, A1):
        fill(manager.get_or_create(tp), 30)
    lost = manager.logs[A1].directory.parent
    manager.close()
    disk.broken.add(lost)
    again = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    assert set(again.logs) == {A0}
    with pytest.raises(LogStorageError, match="repair it"):
        again.get_or_create(A1)
    again.close()
    disk.broken.clear()
    whole = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    assert whole.logs[A1].log_end_offset == whole.logs[A0].log_end_offset > 30


def test_a_log_dir_that_fails_while_its_logs_are_opened_is_left_out(tmp_path):
    disk = SimulatedDisk(tmp_path)
    manager = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    for tp in (A0, A1, B0):
        fill(manager.get_or_create(tp), 30)
    lost = manager.logs[A1].directory
    manager.abandon()
    disk.broken.add(lost)
    again = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    assert lost.parent not in again.dirs.working_paths
    assert {log.directory.parent for log in again.logs.values()} == set(again.dirs.working_paths)


def test_a_log_dir_that_fails_is_left_alone_and_the_others_are_closed_in_order(tmp_path):
    disk = SimulatedDisk(tmp_path)
    manager = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    for tp in (A0, A1):
        fill(manager.get_or_create(tp), 30)
    broken = manager.logs[A1].directory.parent
    heard: list[Any] = []
    manager.dirs.on_failed = lambda path, error: heard.append((path, manager.fail_dir(path)))
    disk.broken.add(broken)
    manager.write_recovery_points()
    manager.write_recovery_points()
    assert heard == [(broken, True)]
    with pytest.raises(LogStorageError):
        manager.get_or_create(A1)
    assert manager.get_or_create(B0).directory.parent != broken
    manager.close()
    disk.broken.clear()
    again = open_manager(tmp_path / "a", tmp_path / "b", disk=disk)
    assert again.recovered_bytes == again.logs[A1].size_in_bytes


def test_a_checkpoint_for_which_there_is_no_room_fails_nothing(tmp_path, caplog):
    disk = SimulatedDisk(tmp_path)
    manager = open_manager(tmp_path / "a", disk=disk)
    fill(manager.get_or_create(A0), 30)
    manager.dirs.on_failed = lambda path, error: pytest.fail("a full log dir has not failed")
    disk.room[tmp_path / "a"] = 0
    manager.write_recovery_points()
    assert "checkpoint not written" in caplog.text
    disk.room.clear()
    manager.close()


def test_a_deleted_partition_is_gone_and_may_come_anew(tmp_path):
    background = Later()
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
    manager.logs[A0].retention.advance_log_start(9)
    manager.close()
    assert open_manager(tmp_path).logs[A0].log_start_offset == 9


def test_truncation_below_the_recovery_point_is_on_disk_before_the_next_append(tmp_path):
    manager = open_manager(tmp_path)
    log = manager.get_or_create(A0)
    fill(log, 60)
    log.flush()
    manager.write_recovery_points()
    log.truncation.truncate_to(10)
    checkpoint = read_offsets(REAL_DISK, tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoint.offsets == {A0: log.log_end_offset}


def test_each_topic_has_its_settings(tmp_path):
    def config_of(topic: str) -> LogConfig:
        return LogConfig(max_message_bytes=100 if topic == "a" else 200)

    manager = open_manager(tmp_path, config_of=config_of)
    assert manager.get_or_create(A0).config.max_message_bytes == 100
    assert manager.get_or_create(B0, LogConfig(max_message_bytes=5)).config.max_message_bytes == 5


def test_cleanly_closed_partitions_are_opened_without_reading_their_batches(tmp_path):
    """What opening a thousand of them costs, `headrace bench log` tells."""
    manager = open_manager(tmp_path)
    for partition in range(50):
        fill(manager.get_or_create(TopicPartition("t", partition)), 20)
    ends = {tp: log.log_end_offset for tp, log in manager.logs.items()}
    manager.close()
    again = open_manager(tmp_path)
    assert again.recovered_bytes == 0
    assert {tp: log.log_end_offset for tp, log in again.logs.items()} == ends
    again.close()


def test_a_manager_that_never_loaded_leaves_the_log_dir_as_it_was(tmp_path):
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
    assert not again.dirs.were_shut_down_clean
    assert again.recovered_bytes > 0


def test_where_a_log_is_clean_is_kept_but_not_for_a_partition_made_anew(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].cleaning.first_dirty_offset = 7
    manager.close()
    again = open_manager(tmp_path)
    assert again.logs[A0].cleaning.first_dirty_offset == 7
    path = tmp_path / "cleaner-offset-checkpoint"
    assert read_offsets(REAL_DISK, path).offsets == {A0: 7}
    again.logs[A0].truncation.truncate_to(4)
    assert read_offsets(REAL_DISK, path).offsets[A0] in (3, 4)
    again.delete(A0)
    fill(again.get_or_create(A0), 5)
    again.abandon()
    anew = open_manager(tmp_path)
    assert anew.logs[A0].cleaning.first_dirty_offset == 0
    anew.close()


OLD_TOPIC, NEW_TOPIC = uuid.uuid4(), uuid.uuid4()


def test_a_log_of_an_earlier_topic_of_that_name_is_put_aside_whole(tmp_path, caplog):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0, topic_id=OLD_TOPIC), 30)
    fill(manager.get_or_create(A1, topic_id=OLD_TOPIC), 5)
    old = sorted(path.name for path in (tmp_path / "a-0").glob("*.log"))
    manager.abandon()
    manager = open_manager(tmp_path)
    log = manager.get_or_create(A0, topic_id=NEW_TOPIC)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    (stray,) = tmp_path.glob("a-0.*-stray")
    assert sorted(path.name for path in stray.glob("*.log")) == old
    assert f"folder={stray}" in caplog.text
    assert manager.get_or_create(A1, topic_id=OLD_TOPIC).log_end_offset > 0
    fill(log, 7)
    end = log.log_end_offset
    manager.close()
    again = open_manager(tmp_path)
    assert again.get_or_create(A0, topic_id=NEW_TOPIC).log_end_offset == end
    assert stray.is_dir()
    again.close()


@pytest.mark.parametrize(
    "content", [None, b"", b"version: 0\n", b"version: 1\ntopic_id: x\n", b"\xff"]
)
def test_a_log_that_does_not_tell_its_topic_keeps_its_records_and_learns_it(tmp_path, content):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    end = manager.logs[A0].log_end_offset
    if content is not None:
        (tmp_path / "a-0" / "partition.metadata").write_bytes(content)
    assert manager.get_or_create(A0, topic_id=OLD_TOPIC).log_end_offset == end
    assert manager.get_or_create(A0, topic_id=OLD_TOPIC).log_end_offset == end
    assert manager.get_or_create(A0, topic_id=NEW_TOPIC).log_end_offset == 0
    manager.close()


def test_a_power_loss_takes_no_topic_id_whose_records_it_leaves():
    """Else records of a topic that was deleted meanwhile would pass for those of the next one."""
    root = Path("/disk")
    disk = SimulatedDisk(root)
    manager = open_manager(root, disk=disk)
    log = manager.get_or_create(A0, topic_id=OLD_TOPIC)
    fill(log, 30)
    log.flush()
    manager.write_recovery_points()
    disk.lose_power()
    manager = open_manager(root, disk=disk)
    assert manager.logs[A0].log_end_offset > 0
    assert manager.get_or_create(A0, topic_id=NEW_TOPIC).log_end_offset == 0


def test_a_file_that_can_not_be_removed_keeps_no_other_one(tmp_path):
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir()
    gone.touch()
    manager = open_manager(tmp_path / "logs")
    manager.remove_files([kept, gone])
    assert kept.exists() and not gone.exists()
    manager.close()
