"""A stop flushes the logs side by side, and no failed flush counts. R-LOG4, R-LOG8."""

import errno
import threading
from pathlib import Path

import pytest

from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LOGS_PER_ROUND, LogManager, one_after_another
from storage_engine.log.files.disk import RealDisk
from storage_engine.net.event_loop_ports import run_side_by_side
from storage_engine.tests.log.support import (
    fill,
    loaded_log_manager,
    read_all,
)

COUNT = LOGS_PER_ROUND + 6


class WatchedDisk(RealDisk):
    """Notes where files are brought to the medium, and fails those of one log dir."""

    def __init__(self) -> None:
        self.synced: list[tuple[Path, threading.Thread]] = []
        self.broken: Path | None = None

    def sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.synced.append((path, threading.current_thread()))
        if path.parent == self.broken:
            raise OSError(errno.EIO, "medium")
        super().sync(descriptor)


def filled(log_dir: Path, disk: WatchedDisk, count: int) -> LogManager:
    manager = loaded_log_manager([log_dir], disk=disk)
    for number in range(count):
        fill(manager.get_or_create(TopicPartition("t", number)), 3)
    disk.synced.clear()
    return manager


def test_logs_are_flushed_on_many_threads_and_all_their_records_are_there_again(tmp_path):
    disk = WatchedDisk()
    manager = filled(tmp_path, disk, COUNT)
    records = {tp: read_all(log) for tp, log in manager.logs.items()}
    manager.close(run_side_by_side)
    of_logs = [thread for path, thread in disk.synced if path.parent.parent == tmp_path]
    assert len(of_logs) >= COUNT
    assert threading.main_thread() not in of_logs
    again = loaded_log_manager([tmp_path])
    assert again.dirs.were_shut_down_clean
    assert {tp: read_all(log) for tp, log in again.logs.items()} == records
    again.close()


def test_as_many_flushes_are_handed_over_together_as_descriptors_allow(tmp_path):
    handed: list[int] = []

    def run(works):
        handed.append(len(works))
        return one_after_another(works)

    manager = filled(tmp_path, WatchedDisk(), COUNT)
    manager.close(run)
    assert handed == [LOGS_PER_ROUND, COUNT - LOGS_PER_ROUND]


def test_a_flush_that_failed_is_not_repeated_and_the_stop_is_not_clean(tmp_path):
    disk = WatchedDisk()
    manager = filled(tmp_path, disk, 5)
    broken = disk.broken = manager.logs[TopicPartition("t", 2)].directory
    with pytest.raises(LogStorageError, match=broken.name):
        manager.close(run_side_by_side)
    assert [path.parent for path, _ in disk.synced].count(broken) == 1
    others = {path.parent.name for path, _ in disk.synced}
    assert others >= {"t-0", "t-1", "t-3", "t-4"}
    again = loaded_log_manager([tmp_path])
    assert not again.dirs.were_shut_down_clean
    again.close()


def test_how_many_logs_a_log_dir_has_is_known_without_counting_them(tmp_path):
    log_dirs = [tmp_path / "a", tmp_path / "b"]
    manager = loaded_log_manager(log_dirs)
    for number in range(7):
        manager.get_or_create(TopicPartition("t", number))
    manager.delete(TopicPartition("t", 1))
    manager.put_aside(TopicPartition("t", 2))
    found = {log_dir: len(list(log_dir.glob("t-[0-9]"))) for log_dir in log_dirs}
    assert dict(manager._open_logs.counts) == found
    manager.close()
