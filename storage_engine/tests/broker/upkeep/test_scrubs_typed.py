"""Damage in the columns of a typed topic: found, told by the column, and repaired with the same
bytes from another replica (R-LOG8)."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header
from storage_engine.protocol.typed.typed_batch import directory_of
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    create_typed,
    topic_id_of,
    typed_batch,
)
from storage_engine.tests.broker.upkeep.test_scrubs import contents, segments

BATCHES = 12


def typed_cluster(
    folder: Path, rows: int, *, segment_bytes: str, scrub_ms: str, tag: str = "a"
) -> Iterator[SimulatedCluster]:
    """Two replicas of a typed topic with finished segments. `tag` may name the batch's number."""
    cluster = SimulatedCluster(
        folder,
        2,
        default_replication_factor="2",
        log_scrub_interval_ms=scrub_ms,
        log_index_interval_bytes="200",
    )
    create_typed(cluster, segment_bytes=segment_bytes)
    leader = cluster.state(TRIPS).leader
    topic_id = topic_id_of(cluster)
    for number in range(BATCHES):
        batch = typed_batch(topic_id, rows * number, rows, tag=tag.format(number))
        append = cluster[leader].replicas.get(TRIPS).append(memoryview(batch), acks=-1)
        assert append.base_offset == rows * number
    cluster.wait_in_sync(TRIPS, 1, 2)
    cluster.loop.run_for(3000)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    yield from typed_cluster(tmp_path, 10, segment_bytes="2500", scrub_ms="20000")


@pytest.mark.parametrize("is_of_leader", [True, False])
def test_a_damaged_column_is_named_and_repaired(cluster, caplog, is_of_leader):
    leader = cluster.state(TRIPS).leader
    broker, other = (leader, 3 - leader) if is_of_leader else (3 - leader, leader)
    good = contents(cluster, other, TRIPS)
    path = segments(cluster, broker, TRIPS)[1]
    data = bytearray(path.read_bytes())
    directory = directory_of(read_header(data), data)
    tag = directory.column(SCHEMA.latest.column("tag").column_id)
    data[HEADER_BYTES + directory.size + tag.place + 5] ^= 0x10
    path.write_bytes(data)
    with caplog.at_level(logging.INFO):
        cluster.loop.run_until(lambda: contents(cluster, broker, TRIPS) == good, limit_ms=60_000)
    (line,) = [m for m in caplog.messages if m.startswith("damaged partition=trips-0")]
    assert f"the CRC does not match: column {tag.column_id} is damaged" in line
