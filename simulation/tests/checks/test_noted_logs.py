"""What the checker notes of a log whose beginning was deleted."""

from pathlib import Path

import pytest

from simulation.checks.copies import BatchNote, noted
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from storage_engine.core.ids import TopicPartition
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


@pytest.mark.parametrize(("begun_at", "is_taken"), [(0, False), (1, False), (2, True)])
def test_a_batch_is_taken_twice_only_where_its_producer_is_unknown(begun_at, is_taken):
    """Its two batches are deleted in the second case but for one, in the third case both."""
    record = PartitionRecord(TopicPartition("t", 0), False, 1, is_compacted=True)
    copy = record.copy(1)
    for offset, sequence in enumerate((0, 1, 0)):
        copy.add(BatchNote(offset, offset + 1, 0, 0, (7, 0, sequence), False, None, offset))
    record.commit(1, 2)
    copy.begun_at = begun_at
    if is_taken:
        record.commit(1, 3)
    else:
        with pytest.raises(InvariantViolation, match="has sequence 0, 2 comes next"):
            record.commit(1, 3)
