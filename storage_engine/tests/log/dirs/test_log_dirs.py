"""Which log dirs of a broker are used, and what is made in which. KIP-112, R-CTL6."""

from typing import Any

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import ErrorCode, KafkaError, LogStorageError, StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dirs import PREFERRED_MAX
from storage_engine.tests.log.dirs.managers import A0, A1, B0, open_manager
from storage_engine.tests.log.support import (
    SMALL,
    ManualClock,
    fill,
    new_log_manager,
)


def test_new_partitions_go_to_the_log_dir_with_the_fewest(tmp_path):
    manager = open_manager(tmp_path / "x", tmp_path / "y")
    for partition in range(6):
        manager.get_or_create(TopicPartition("t", partition))
    manager.close()
    assert len(list((tmp_path / "x").glob("t-*"))) == len(list((tmp_path / "y").glob("t-*"))) == 3
    assert len(open_manager(tmp_path / "y", tmp_path / "x").logs) == 6


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


def test_an_unknown_log_dir_is_refused(tmp_path):
    manager = open_manager(tmp_path / "a")
    with pytest.raises(KafkaError) as refused:
        manager.dirs.at(tmp_path / "c")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    manager.abandon()


def test_wishes_have_a_bound(tmp_path):
    manager = open_manager(tmp_path / "a", tmp_path / "b")
    for number in range(PREFERRED_MAX + 1):
        manager.dirs.prefer(TopicPartition("t", number), tmp_path / "b")
    counts = {tmp_path / "b": 1}
    chosen = [
        manager.dirs.for_new_log(TopicPartition("t", number), counts).path.name
        for number in (0, 1, 1)
    ]
    assert chosen == ["a", "b", "a"]
    manager.abandon()
