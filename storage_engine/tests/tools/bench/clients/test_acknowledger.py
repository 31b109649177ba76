"""The peer that acknowledges, in the place of brokers."""

import socket
import struct

from benchmarks.support.random_values import random_values
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import encode_batches


def test_the_acknowledger_gives_each_batch_the_offsets_after_those_before_it(acknowledger):
    told: list[tuple[int, int]] = []
    with (
        Cluster(acknowledger) as cluster,
        BatchWriter(
            cluster, on_delivered=lambda _, base, records: told.append((base, records))
        ) as writer,
    ):
        for _ in range(3):
            for batch in encode_batches(random_values(50, 100, seed=0), batch_bytes=1 << 20):
                writer.append(TopicPartition("t", 4), batch)
    assert sorted(told) == [(0, 50), (50, 50), (100, 50)]


def test_the_acknowledger_ends_a_connection_that_asks_for_more(acknowledger):
    host, _, port = acknowledger.partition(",")[0].rpartition(":")
    fetch = struct.pack(">hhihi", 1, 11, 7, -1, -1)
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(fetch)) + fetch)
        assert connection.recv(1) == b""
