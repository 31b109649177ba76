"""After a failed fsync the kernel counts the pages as clean: what was not flushed is written anew
before a flush may count it, also by the next process."""

import random
from uuid import UUID

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import LogDirError
from storage_engine.log.log_config import LogConfig
from storage_engine.log.recovery.recovery import COPIED_BATCH_MAX_BYTES
from storage_engine.log.state.checkpoints import read_topic_id, write_topic_id
from storage_engine.tests.log.recovery.test_simulated_recovery import ROOT
from storage_engine.tests.log.support import SMALL, TP, append, fill, open_log, read_all
from storage_engine.tests.sampling import seeds


def flush_fails(disk: SimulatedDisk, log) -> None:
    disk.broken_syncs.add(ROOT)
    with pytest.raises(LogDirError):
        log.flush()
    disk.broken_syncs.clear()


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize(("flushed", "lost"), [(0, 3), (5, 1), (3, 40), (40, 40)])
def test_what_a_flush_counts_is_on_the_medium_after_one_that_failed(flushed, lost, seed):
    """The log has one segment, several, or its recovery point amid them."""
    disk = SimulatedDisk(ROOT)
    log = open_log(ROOT, SMALL, disk=disk)
    fill(log, flushed)
    log.flush()
    recovery_point = log.recovery_point
    fill(log, lost)
    flush_fails(disk, log)
    log.close_without_flush()
    disk.kill_process()
    log = open_log(ROOT, SMALL, disk=disk, recovery_point=recovery_point)
    fill(log, 2)
    log.flush()
    recovery_point, headers = log.recovery_point, read_all(log)
    assert recovery_point == log.log_end_offset
    log.close_without_flush()
    disk.lose_power(random.Random(seed) if seed else None)
    log = open_log(ROOT, SMALL, disk=disk, recovery_point=recovery_point, is_cached=False)
    assert read_all(log) == headers


def test_a_large_batch_is_written_anew_too():
    disk = SimulatedDisk(ROOT)
    log = open_log(ROOT, LogConfig(max_message_bytes=1 << 30), disk=disk)
    append(log, payload=bytes(COPIED_BATCH_MAX_BYTES))
    fill(log, 2)
    end = log.log_end_offset
    flush_fails(disk, log)
    log.close_without_flush()
    disk.kill_process()
    log = open_log(ROOT, disk=disk)
    log.flush()
    log.close_without_flush()
    disk.lose_power()
    assert open_log(ROOT, disk=disk, recovery_point=end).log_end_offset == end


def test_the_id_of_the_topic_is_written_anew_too():
    disk = SimulatedDisk(ROOT)
    log = open_log(ROOT, disk=disk)
    write_topic_id(disk, log.directory, UUID(int=7))
    fill(log, 1)
    flush_fails(disk, log)
    # The log's own file came first, and a flush ends with the first failure.
    descriptor = disk.open_existing(log.directory / "partition.metadata")
    disk.broken_syncs.add(ROOT)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync(descriptor)
    disk.broken_syncs.clear()
    log.close_without_flush()
    disk.kill_process()
    log = open_log(ROOT, disk=disk)
    log.flush()
    log.close_without_flush()
    disk.lose_power()
    assert read_topic_id(disk, ROOT / str(TP)) == UUID(int=7)


def test_nothing_is_written_where_the_last_stop_was_clean_or_the_machine_was_restarted():
    """A start after a loss of power only reads, and reads from the medium."""
    disk = SimulatedDisk(ROOT)
    log = open_log(ROOT, disk=disk)
    fill(log, 9)
    log.close_without_flush()
    path = log.segments.active.file.path
    before = disk.modified_ms(path)
    disk.wall_ms = lambda: before + 1
    open_log(ROOT, disk=disk, clean=True).close_without_flush()
    open_log(ROOT, disk=disk, is_cached=False).close_without_flush()
    assert disk.modified_ms(path) == before
    open_log(ROOT, disk=disk).close_without_flush()
    assert disk.modified_ms(path) == before + 1
