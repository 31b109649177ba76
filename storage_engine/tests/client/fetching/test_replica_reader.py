"""The batches of one replica, whether it leads or not (R-TOOL2)."""

import pytest

from storage_engine.client.fetching.replica_reader import (
    ReplicaReader,
    ReplicaState,
    replica_states,
)
from storage_engine.core.errors import CorruptRecordError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import ANY_REPLICA_ID
from storage_engine.tests.client.support.batches import append_batches

T0 = TopicPartition("t", 0)
TIMEOUT_MS = 30_000


@pytest.fixture
def filled(fake):
    """Five batches of three records, at broker 1."""
    fake.add_topic("t", [1])
    append_batches(fake, 5)
    return fake


def reader_of(cluster, start_offset=0, end_offset=15):
    return ReplicaReader(
        cluster,
        1,
        T0,
        start_offset=start_offset,
        end_offset=end_offset,
        timeout_ms=TIMEOUT_MS,
    )


def read(reader):
    return [batch.header.base_offset for batch in iter(reader.next, None)]


def test_batches_come_from_the_start_to_below_the_end_and_as_they_lie_there(filled, cluster):
    batches = list(iter(reader_of(cluster, 4, 12).next, None))
    assert [batch.header.base_offset for batch in batches] == [3, 6, 9]
    assert [batch.data for batch in batches] == filled.partition("t").batches[1:4]
    asked = [each.message for each in filled.asked if each.api == "Fetch"]
    assert {message.replica_id for message in asked} == {ANY_REPLICA_ID}


def test_what_retention_deletes_meanwhile_is_passed_over(filled, cluster):
    reader = reader_of(cluster)
    filled.partition("t").start_offset = 6
    del filled.partition("t").batches[:2]
    assert read(reader) == [6, 9, 12]
    assert reader.start_offset == 6


def test_a_gap_at_the_end_of_a_compacted_log_is_its_end(filled, cluster):
    filled.partition("t").batches.pop()
    assert read(reader_of(cluster)) == [0, 3, 6, 9]


def test_batches_out_of_order_are_damage(filled, cluster):
    batches = filled.partition("t").batches
    batches[1], batches[2] = batches[2], batches[1]
    reader = reader_of(cluster)
    with pytest.raises(CorruptRecordError, match="t-0 on broker 1: a batch that ends at offset 5"):
        read(reader)


def test_an_error_of_the_replica_is_told_with_the_offset(filled, cluster):
    filled.move_leader("t", 0, 2)
    with pytest.raises(KafkaError, match="t-0 at offset 3: ") as raised:
        read(reader_of(cluster, 3))
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_states_are_told_by_an_offset_that_no_replica_has(filled, cluster):
    filled.add_topic("u", [2])
    filled.partition("t").start_offset = 3
    u0 = TopicPartition("u", 0)
    states = replica_states(cluster, 1, [T0, u0], timeout_ms=TIMEOUT_MS)
    assert states[T0] == ReplicaState(3, 15)
    assert states[u0].code is ErrorCode.NOT_LEADER_OR_FOLLOWER
