"""Followers that serve consumers of their rack do so for typed topics, too."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import BY_NAME, FetchPartition, FetchRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.typed.frames import PROJECTED, iter_frames
from storage_engine.protocol.typed.projection import TypedWant
from storage_engine.protocol.typed.typed_batch import is_typed
from storage_engine.tests.broker.typed_topics.typed_support import (
    TRIPS,
    columns,
    create_typed,
    topic_id_of,
    typed_batch,
)

RACKS = ("rack-1", "rack-2", "rack-3")
ROWS = 50


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(
        tmp_path,
        racks=RACKS,
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
    )
    create_typed(made)
    made.wait_in_sync(TRIPS, 1, 2, 3)
    leader = made.state(TRIPS).leader
    batch = memoryview(typed_batch(topic_id_of(made), 0, ROWS))
    request = ProduceRequest(None, -1, 30_000, [ProducePartition("trips", 0, batch)])
    assert made.answer(made.ask(leader, PRODUCE, 8, request)).partitions[0].error_code == 0
    made.loop.run_for(1000)
    yield made
    made.close()


def ask(cluster: SimulatedCluster, broker: int, rack: str, want: TypedWant | None = None) -> Any:
    # A limit far below a batch: the first one comes all the same.
    wanted = [FetchPartition("trips", 0, 0, 100, want=want)]
    request = FetchRequest(0, 1, 100, wanted, rack_id=rack)
    return cluster.answer(cluster.ask(broker, BY_NAME, 12, request)).partitions[0]


def test_a_follower_serves_rows_of_json_and_columns_above_the_limits(cluster):
    leader = cluster.state(TRIPS).leader
    follower = leader % 3 + 1
    rack = f"rack-{follower}"
    assert ask(cluster, leader, rack).preferred_read_replica == follower
    rows = decode_batches([bytes(ask(cluster, follower, rack).records)])
    assert rows.offsets.to_pylist() == list(range(ROWS))
    assert [json.loads(each)["id"] for each in rows.values.to_pylist()] == list(range(ROWS))
    (frame,) = iter_frames(ask(cluster, follower, rack, columns(1)).records)
    assert frame.kind == PROJECTED


def test_every_replica_has_the_same_typed_bytes(cluster):
    logs = [cluster[broker].replicas.get(TopicPartition("trips", 0)).log for broker in (1, 2, 3)]
    first, *others = [bytes(log.reads.read(0, max_bytes=1 << 20).read_bytes()) for log in logs]
    assert is_typed(read_header(first))
    assert others == [first, first]
