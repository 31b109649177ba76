"""Recovery over the simulated disk: what was cut off once stays away."""

import random
from pathlib import Path

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.protocol.records.record_batch import crc_matches, iter_headers
from storage_engine.tests.log.support import SMALL, fill, open_log
from storage_engine.tests.sampling import seeds

ROOT = Path("/data")


@pytest.mark.parametrize("seed", seeds(40))
def test_what_recovery_cuts_off_does_not_come_back_after_a_clean_stop(seed):
    """A torn batch is cut off, the log is closed in order without another append, and then the
    power fails: without a flush of the cut the torn batch would stand at the end of a clean log."""
    choose = random.Random(seed)
    disk = SimulatedDisk(ROOT)
    log = open_log(ROOT, SMALL, disk=disk)
    fill(log, 5)
    log.flush()
    end = log.recovery_point
    fill(log, 2)
    log.close_without_flush()
    disk.lose_power(choose)
    log = open_log(ROOT, SMALL, disk=disk, recovery_point=end)
    end = log.log_end_offset
    log.close()
    disk.lose_power(choose)
    log = open_log(ROOT, SMALL, disk=disk, recovery_point=end, clean=True)
    assert log.log_end_offset == end
    piece = log.reads.read(0, max_bytes=1 << 20)
    assert piece is not None
    view = piece.view()
    assert all(crc_matches(view, at, each.size_in_bytes) for at, each in iter_headers(view))
