"""Where two replicas first differ."""

from collections.abc import Iterable, Sequence

import pytest

from storage_engine.client.fetching.replica_reader import ReplicaBatch
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.protocol.hostile_batches import batch, records
from storage_engine.tools.inspection.replica_comparison import (
    Difference,
    ReplicaComparison,
    compare,
)


def three(at: int, *, value_size: int = 5, **fields: int) -> ReplicaBatch:
    """A batch of three records from offset `at` on."""
    data = batch(records(3, size=value_size), base_offset=at, **fields)
    return ReplicaBatch(read_header(data), data)


class Replica:
    """Batches from memory."""

    def __init__(self, batches: Iterable[ReplicaBatch], start_offset: int = 0) -> None:
        self._batches = list(batches)
        self.start_offset = start_offset

    def next(self) -> ReplicaBatch | None:
        return self._batches.pop(0) if self._batches else None


LOG = [three(0), three(3), three(6)]


def compared(
    reference: Sequence[ReplicaBatch], replica: Sequence[ReplicaBatch], *, compacted: bool = False
) -> ReplicaComparison:
    return compare(Replica(reference), Replica(replica), is_compacted=compacted)


def test_equal_replicas_are_equal():
    assert compared(LOG, LOG) == ReplicaComparison(batches=3)
    assert compared([], []) == ReplicaComparison()


@pytest.mark.parametrize(
    ("replica", "offset", "what"),
    [
        ([LOG[0], three(3, value_size=6), LOG[2]], 3, "other contents: CRC"),
        ([LOG[0], three(3, leader_epoch=1), LOG[2]], 3, "leader epoch 1, the leader has 0"),
        ([LOG[0], three(3, crc_xor=1), LOG[2]], 3, "its CRC does not match its contents"),
        ([LOG[0], LOG[2]], 3, "a batch of offsets 6 to 8, the leader has 3 to 5"),
        ([LOG[0], three(3, last_offset_delta=1)], 3, "a batch of offsets 3 to 4, the leader has"),
        (LOG[:2], 6, "the replica has no more batches"),
        ([*LOG, three(9)], 9, "the replica has more batches than the leader"),
    ],
)
def test_the_first_difference_is_told(replica, offset, what):
    difference = compared(LOG, replica).difference
    assert difference is not None
    assert difference.offset == offset
    assert difference.what.startswith(what)
    assert not difference.of_reference


def test_damage_of_the_leader_is_told_as_the_leaders():
    damaged = [LOG[0], three(3, crc_xor=1), LOG[2]]
    what = "its CRC does not match its contents"
    for replica in (LOG, damaged):
        difference = compared(damaged, replica).difference
        assert difference == Difference(offset=3, what=what, of_reference=True)


def test_what_retention_deletes_meanwhile_is_no_difference():
    replica = Replica(LOG[1:], start_offset=3)
    assert compare(Replica(LOG), replica, is_compacted=False) == ReplicaComparison(batches=2)
    assert compare(Replica(LOG), Replica(LOG[2:], 6), is_compacted=False) == ReplicaComparison(
        batches=1
    )
    assert compare(Replica(LOG[2:], 6), Replica(LOG), is_compacted=False) == ReplicaComparison(
        batches=1
    )


def test_in_a_compacted_topic_only_batches_of_the_same_shape_count():
    compacted = three(3, count=2, last_offset_delta=2)
    done = compared(LOG, [LOG[0], compacted, LOG[2]], compacted=True)
    assert done == ReplicaComparison(batches=2, skipped=1)
    assert compared(LOG, [LOG[2]], compacted=True) == ReplicaComparison(batches=1, skipped=2)
    assert compared(LOG[:1], LOG, compacted=True) == ReplicaComparison(batches=1, skipped=2)
    done = compared(LOG, [LOG[0], three(3, value_size=6), LOG[2]], compacted=True)
    assert done.difference is not None
    assert done.difference.offset == 3
