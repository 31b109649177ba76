"""What the checker takes for committed, and when a broker that lost its power counts as whole."""

import pytest

from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation, PartitionRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode


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


@pytest.mark.parametrize("members", [[1, 2], [2, 1]])
def test_members_that_lost_their_power_vouch_for_one_another_in_no_order(members):
    record = PartitionRecord(TopicPartition("t", 0), False, 1)
    before = PartitionStateZNode(leader=2, leader_epoch=0, isr=(2, 3, 1), controller_epoch=1)
    after = PartitionStateZNode(leader=2, leader_epoch=1, isr=(2, 1), controller_epoch=2)
    for broker in (1, 2, 3):
        record.lose_power(broker)
    record.vouch(members, before, after)
    assert (record.cut, record.unclean) == ({3}, True)


def test_the_only_member_that_lost_its_power_must_not_lead():
    record = PartitionRecord(TopicPartition("t", 0), False, 1)
    before = PartitionStateZNode(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=1)
    after = PartitionStateZNode(leader=2, leader_epoch=1, isr=(2, 1), controller_epoch=1)
    record.lose_power(2)
    with pytest.raises(InvariantViolation, match=r"of which \[1\] lost nothing"):
        record.vouch([2], before, after)
