"""R-LOG4: with `flush.before.ack` one fsync serves many producers."""

import re
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from integration_tests.support.cluster_support import create_topic, running_cluster

PRODUCERS = 16
SECONDS = 4.0
SHARED = 4
"""Batches for each fsync, on any machine; `headrace bench log` tells whether the goal is met."""


def produce_until(servers: str, deadline: float, partitions: int) -> None:
    """One batch of one record after the other, as many in flight as librdkafka likes."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": "true",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 20,
            "log_level": 0,
        }
    )
    number = 0
    while time.monotonic() < deadline:
        try:
            producer.produce("durable", bytes(1000), partition=number % partitions)
            number += 1
        except BufferError:
            producer.poll(0.01)
    assert producer.flush(120) == 0


def test_one_fsync_serves_the_batches_of_many_producers(tmp_path):
    settings = (("default.replication.factor", "1"), ("flush.before.ack", "true"))
    with running_cluster(tmp_path, brokers=1, settings=settings) as cluster:
        create_topic(cluster, "durable", replication_factor=1)
        deadline = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=produce_until, args=(cluster.bootstrap_servers, deadline, 1))
            for _ in range(PRODUCERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log_file = tmp_path / cluster.state.brokers[0].log_file
        cluster.stop_broker(1)
        batches, fsyncs, rounds = counters(log_file)
    assert batches > 100
    assert rounds <= fsyncs
    assert batches / fsyncs >= SHARED, f"{batches} batches, {fsyncs} fsyncs"


def counters(log_file: Path) -> tuple[int, int, int]:
    """What a broker said last."""
    found = re.findall(
        r"durable acknowledgements batches=(\d+) fsyncs=(\d+) rounds=(\d+)", log_file.read_text()
    )
    batches, fsyncs, rounds = map(int, found[-1])
    return batches, fsyncs, rounds
