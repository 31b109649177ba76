"""What the checker takes for committed, of batches whose producer it does not know any more."""

import pytest

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from storage_engine.core.ids import TopicPartition


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
