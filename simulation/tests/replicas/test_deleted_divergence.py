"""A replica returns whose log parts from the leader's below the start of the leader's."""

from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import make_batch, produce_request
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import produce
from storage_engine.protocol.messages import delete_records

TP = TopicPartition("t", 0)


def write(cluster: SimulatedCluster, broker: int, payload: bytes) -> list[Any]:
    """Send the first batch of an idempotent producer."""
    batch = make_batch(payload=payload, producer=(7, 0, 0))
    return cluster.ask(
        broker, produce.API, 8, produce_request(TP.topic, TP.partition, batch, acks=-1)
    )


def delete_to(cluster: SimulatedCluster, broker: int, offset: int) -> None:
    topic = delete_records.DeleteRecordsRequest.DeleteRecordsTopic
    row = topic.DeleteRecordsPartition(partition_index=TP.partition, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[topic(name=TP.topic, partitions=[row])], timeout_ms=30_000
    )
    answer = cluster.answer(cluster.ask(broker, delete_records.API, 2, request))
    assert answer.topics[0].partitions[0].error_code == 0


def leads(cluster: SimulatedCluster, broker: int) -> bool:
    hosted = cluster[broker].replicas.get(TP)
    return cluster.state(TP).leader == broker and hosted is not None and hosted.leader is not None


@pytest.mark.parametrize("other_is_new", [False, True])
def test_a_batch_that_was_never_committed_is_not_taken_for_a_deleted_one(cluster, other_is_new):
    """a appends batches that nobody fetches, and dies. Others stand at their offsets now, and are
    deleted. a returns and leads again, when a producer sends its batch once more: it is not
    acknowledged as one that a has already.

    `other_is_new`: meanwhile the leader is one that has not seen the deleted records either.
    """
    assert cluster.controller is not None
    c = cluster.controller.id
    a, b = (broker for broker in (1, 2, 3) if broker != c)
    cluster.reassign(TP, (a, b, c))
    cluster.loop.run_for(1000)
    cluster.elect_preferred(TP)
    cluster.loop.run_until(lambda: leads(cluster, a))
    cluster.wait_in_sync(TP, a, b, c)
    cluster.network.hold_up(b, a)
    cluster.network.hold_up(c, a)
    cluster.loop.run_for(1000)
    assert not write(cluster, a, b"retried")
    for _ in range(3):
        # With them its log ends above the start of the leader's.
        cluster.answer(cluster.produce(a, TP, b"never committed", acks=1))
    assert cluster[a].logs.logs[TP].log_end_offset == 5
    cluster[a].kill(session_ends_at_once=True)
    cluster.network.heal()
    cluster.loop.run_until(lambda: leads(cluster, b))
    if other_is_new:
        cluster[c].kill(session_ends_at_once=True)
        cluster.wait_in_sync(TP, b)
    for number in range(3):
        cluster.produced(TP, b"other %d" % number)
    delete_to(cluster, b, 3)
    if other_is_new:
        cluster[c].start()
        cluster.wait_in_sync(TP, b, c)
        assert cluster[c].logs.logs[TP].log_start_offset == 3
        cluster[b].kill(session_ends_at_once=True)
        cluster.loop.run_until(lambda: leads(cluster, c))

    cluster[a].start()
    cluster.loop.run_until(lambda: a in cluster.state(TP).isr)
    cluster.elect_preferred(TP)
    cluster.loop.run_until(lambda: leads(cluster, a))
    answer = cluster.answer(write(cluster, a, b"retried")).partitions[0]

    assert answer.error_code == 0
    assert answer.base_offset >= 4
    (read,) = cluster.answer(cluster.fetch(a, TP, answer.base_offset)).partitions
    assert b"retried" in bytes(read.records)
