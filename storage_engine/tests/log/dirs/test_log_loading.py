"""Logs that a broker opens when it starts: recovered, put aside, or left out. R-LOG8."""

import uuid
from pathlib import Path

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.log.dirs.managers import A0, A1, B0, open_manager
from storage_engine.tests.log.support import (
    fill,
    join,
    make_batch,
    read_all,
)


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


def test_a_partition_in_two_log_dirs_is_an_error_that_names_both(tmp_path):
    (tmp_path / "x" / "a-0").mkdir(parents=True)
    (tmp_path / "y" / "a-0").mkdir(parents=True)
    with pytest.raises(StorageError, match="partition a-0 is in two log dirs"):
        open_manager(tmp_path / "x", tmp_path / "y")


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


def test_leftovers_of_deletions_are_removed_at_start(tmp_path):
    (tmp_path / "a-0.0123-delete").mkdir()
    (tmp_path / "a-0.0123-delete" / "x.log").write_text("x")
    manager = open_manager(tmp_path)
    assert manager.logs == {}
    assert not (tmp_path / "a-0.0123-delete").exists()


def test_cleanly_closed_partitions_are_opened_without_reading_their_batches(tmp_path):
    """`headrace bench log` tells the cost of opening a thousand of them."""
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
