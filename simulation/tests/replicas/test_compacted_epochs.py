"""A leader epoch whose first records were compacted away still ends the one before it where it
did."""

from typing import Any

import pyarrow as pa

from simulation.world.cluster import CLIENT_TIMEOUT_MS, SimulatedCluster
from simulation.world.network import CLIENT
from simulation.world.requests import produce_request
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import produce
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.compaction_support import Row, rows

TP = TopicPartition("compacted", 0)
FIRST, SECOND, THIRD = 1, 2, 3


def write(cluster: SimulatedCluster, broker: int, key: bytes, value: bytes, acks: int = -1) -> int:
    (batch,) = encode_batches(pa.array([value]), pa.array([key]))
    answers: list[Any] = []
    request = produce_request(TP.topic, TP.partition, batch.data, acks=acks)
    cluster.network.send(
        CLIENT,
        broker,
        produce.API,
        8,
        request,
        timeout_ms=CLIENT_TIMEOUT_MS,
        on_reply=answers.append,
    )
    (row,) = cluster.answer(answers).partitions
    assert row.error_code == 0
    return row.base_offset


def rows_of(cluster: SimulatedCluster, broker: int) -> list[Row]:
    return rows(cluster[broker].logs.logs[TP])


def leads(cluster: SimulatedCluster, broker: int) -> bool:
    hosted = cluster[broker].replicas.get(TP)
    return cluster.state(TP).leader == broker and hosted is not None and hosted.leader is not None


def kill(cluster: SimulatedCluster, broker: int) -> None:
    cluster[broker].kill(session_ends_at_once=True)


def test_a_record_that_was_never_committed_does_not_hide_in_a_gap(tmp_path):
    """The first leader writes a record that nobody fetches, and dies. The second writes at that
    offset, and compaction takes it away. The third fetches across the gap, and leads when the first
    returns: it has to say that the first's epoch ended before that record."""
    cluster = SimulatedCluster(
        tmp_path, 3, auto_leader_rebalance_enable="false", log_cleaner_backoff_ms="500"
    )
    created = cluster.create_topic(
        TP.topic,
        cleanup_policy="compact",
        segment_bytes="2000",
        min_cleanable_dirty_ratio="0.01",
        min_insync_replicas="1",
    )
    assert created.error_code == 0
    cluster.wait_in_sync(TP, FIRST, SECOND, THIRD)
    cluster.reassign(TP, (FIRST, SECOND, THIRD))
    cluster.loop.run_for(1000)
    cluster.elect_preferred(TP)
    cluster.loop.run_until(lambda: leads(cluster, FIRST))
    assert write(cluster, FIRST, b"kept", b"1") == 0
    kill(cluster, THIRD)
    cluster.wait_in_sync(TP, FIRST, SECOND)
    # Nothing leads from the first to the second any more, neither fetches nor orders.
    cluster.network.isolate(SECOND)
    lost_at = write(cluster, FIRST, b"lost", b"never committed", acks=1)
    kill(cluster, FIRST)
    cluster.network.heal()
    cluster.loop.run_until(lambda: leads(cluster, SECOND))
    assert write(cluster, SECOND, b"displaced", b"first") == lost_at
    for number in range(60):
        write(cluster, SECOND, b"displaced", b"%d" % number + bytes(100))
    cluster.loop.run_until(
        lambda: all(row.offset != lost_at for row in rows_of(cluster, SECOND)), limit_ms=60_000
    )
    cluster[THIRD].start()
    cluster.wait_in_sync(TP, SECOND, THIRD)
    kill(cluster, SECOND)
    cluster.loop.run_until(lambda: leads(cluster, THIRD))
    cluster[FIRST].start()
    cluster.wait_in_sync(TP, FIRST, THIRD)
    assert rows_of(cluster, FIRST) == rows_of(cluster, THIRD)
    cluster.close()
