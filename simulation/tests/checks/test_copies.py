"""What the checker notes of a log whose beginning was deleted."""

from pathlib import Path

from simulation.checks.copies import noted
from storage_engine.log.partition_log import PartitionLog
from storage_engine.tests.log.support import append, open_log


def log_in(folder: Path, second: bytes) -> PartitionLog:
    folder.mkdir()
    log = open_log(folder)
    append(log, payload=b"deleted")
    append(log, payload=second)
    return log


def test_a_log_without_its_beginning_is_equal_to_the_log_that_it_replaces(tmp_path):
    log = log_in(tmp_path / "t-0", b"kept")
    whole = noted(log)
    log.retention.advance_log_start(1)
    assert not noted(log).holds(whole)
    found = noted(log, before=whole)
    assert found.holds(whole) and whole.holds(found)


def test_another_record_after_the_beginning_makes_it_another_log(tmp_path):
    whole = noted(log_in(tmp_path / "t-0", b"kept"))
    other = log_in(tmp_path / "t-1", b"other")
    other.retention.advance_log_start(1)
    found = noted(other, before=whole)
    assert not found.holds(whole) and not whole.holds(found)
