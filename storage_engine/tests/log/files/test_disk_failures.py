"""A disk that is full or fails: typed errors, and the log as it was before (R-LOG8)."""

import errno

import pytest

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import (
    append,
    fill,
    make_batch,
    offsets_of,
    open_log,
    read_all,
    read_one,
)


class FullDisk(RealDisk):
    """Takes `room` more bytes, then says ENOSPC; a write that does not fit is cut short first."""

    def __init__(self) -> None:
        self.room = 1 << 40
        self.real_pwrite = RealDisk.pwrite
        self.pwrite = self._pwrite

    def _pwrite(self, descriptor, data, position):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        piece = memoryview(data)[: self.room]
        self.room -= len(piece)
        return self.real_pwrite(descriptor, piece, position)


@pytest.mark.parametrize("room", [0, 1, 60, 160])
def test_a_failed_append_leaves_the_log_as_it_was(tmp_path, room):
    disk = FullDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    fill(log, 5)
    headers, size = read_all(log), log.size_in_bytes
    disk.room = room
    with pytest.raises(LogStorageError, match="No space left on device"):
        append(log, payload=bytes(100), producer=(9, 0, 0))
    assert read_all(log) == headers
    assert (log.directory / f"{0:020d}.log").stat().st_size == size
    assert log.producer_state.get(9) is None
    disk.room = 1 << 40
    append(log, producer=(9, 0, 0))
    assert offsets_of(read_all(log)) == list(range(log.log_end_offset))


def test_a_short_write_is_completed(tmp_path):
    class ShortWrites(RealDisk):
        def __init__(self) -> None:
            self.real_pwrite = RealDisk.pwrite
            self.pwrite = lambda fd, data, at: self.real_pwrite(fd, memoryview(data)[:50], at)

    log = open_log(tmp_path, LogConfig(), disk=ShortWrites())
    append(log, payload=bytes(range(256)) * 2)
    assert bytes(read_one(log, 0).view()[61:]) == bytes(range(256)) * 2
    log.close()


def test_large_appends_are_written_in_parts(tmp_path):
    sizes = []

    class Watched(RealDisk):
        def __init__(self) -> None:
            self.real_pwrite = RealDisk.pwrite
            self.pwrite = self._pwrite

        def _pwrite(self, descriptor, data, position):
            sizes.append(len(data))
            return self.real_pwrite(descriptor, data, position)

    log = open_log(tmp_path, LogConfig(), disk=Watched())
    log.leader_appends.start_epoch(0)
    sizes.clear()
    payload = bytes(range(251)) * 2000
    append(log, payload=payload)
    assert max(sizes) <= 128 << 10
    assert bytes(read_one(log, 0).view()[61:]) == payload


def test_a_failed_roll_changes_nothing(tmp_path):
    disk = FullDisk()
    log = open_log(tmp_path, LogConfig(segment_bytes=1000), disk=disk)
    append(log, payload=bytes(900))
    disk.room = 10
    with pytest.raises(LogStorageError, match="No space left"):
        append(log, payload=bytes(900))
    assert (log.log_end_offset, log.segment_count) == (1, 1)
    disk.room = 1 << 40
    append(log, payload=bytes(900))
    assert offsets_of(read_all(log)) == [0, 1]


def test_an_index_that_cannot_be_written_does_not_fail_the_append(tmp_path):
    class NoIndexes(RealDisk):
        failing = False

        def open_for_append(self, path):
            if self.failing and path.suffix in (".index", ".timeindex"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open_for_append(path)

    disk = NoIndexes()
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0), disk=disk)
    disk.failing = True
    batch = make_batch()
    for _ in range(9000):
        log.leader_appends.append(batch, leader_epoch=0, now_ms=0)
    disk.failing = False
    assert read_one(log, 8000).end_offset == 8001
    log.close()
    again = open_log(tmp_path, LogConfig(), clean=True, recovery_point=9000)
    assert read_one(again, 8000).end_offset == 8001


def test_an_append_that_fails_after_the_roll_leaves_a_log_that_goes_on(tmp_path):
    disk = FullDisk()
    log = open_log(tmp_path, LogConfig(segment_bytes=1000), disk=disk)
    log.follower_appends.append(make_batch(payload=bytes(900), epoch=0))
    room_for_the_roll = 200
    disk.room = room_for_the_roll
    with pytest.raises(LogStorageError, match="No space left"):
        log.follower_appends.append(make_batch(payload=bytes(900), epoch=0, base_offset=50))
    assert log.segment_count == 2
    disk.room = 1 << 40
    end = log.log_end_offset
    assert append(log).base_offset == end
    log.close_without_flush()
    gaps_are_in_order = 1
    again = open_log(tmp_path, LogConfig(), first_dirty_offset=gaps_are_in_order)
    assert offsets_of(read_all(again)) == [0, end]
