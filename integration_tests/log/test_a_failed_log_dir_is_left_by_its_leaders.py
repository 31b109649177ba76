"""R-LOG12, KIP-112: a broker whose second disk fails under load keeps what is on its first; others
lead the rest, producers notice nothing, and after a repair and a restart all replicas return.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    partition_metadata,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.loop_disk import start_with_log_dirs
from integration_tests.support.stored_logs import log_bytes
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "spread"
PARTITIONS = 6
RECORDS_BETWEEN = 200

MIN_FREE = (("log.dir.min.free.bytes", "4194304"),)


def start_with_two_log_dirs(cluster: LocalCluster, broker_id: int, second: Path) -> None:
    first = cluster.directory / cluster.state.broker(broker_id).data_dir
    start_with_log_dirs(cluster, broker_id, first, second)


def held(log_dir: Path) -> set[int]:
    """The partitions that lie in it."""
    return {number for number in range(PARTITIONS) if (log_dir / f"{TOPIC}-{number}").exists()}


@contextlib.contextmanager
def steady_producer(servers: str) -> Iterator[dict[int, list[int]]]:
    """Numbers to all partitions in turn until the end of the block; what was acknowledged, by
    partition. Every one of them must be."""
    acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    errors: list[str] = []
    stop = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "retry.backoff.max.ms": 300,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(str(error))
        else:
            number = int(message.value())  # type: ignore[attr-defined]
            acknowledged[message.partition()].append(number)  # type: ignore[attr-defined]

    def run() -> None:
        number = 0
        while not stop.wait(0.005):
            producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
            number += 1
            producer.poll(0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join(60)
    assert producer.flush(120) == 0
    assert errors == []


def is_left(client: AdminClient, number: int) -> bool:
    """Broker 1 neither leads the partition nor is in sync."""
    found = partition_metadata(client, TOPIC, number)
    return found is not None and sorted(found.isrs) == [2, 3] and found.leader in (2, 3)


def test_leaders_leave_a_failed_log_dir_and_its_replicas_return_after_a_repair(tmp_path, disk):
    with running_cluster(tmp_path / "cluster", settings=MIN_FREE) as cluster:
        cluster.stop_broker(1)
        start_with_two_log_dirs(cluster, 1, disk.path)
        client = admin(cluster)
        wait_until(lambda: len(client.list_topics(timeout=60).brokers) == 3, "broker 1 is back")
        create_topic(cluster, TOPIC, partitions=PARTITIONS, config={"min.insync.replicas": "2"})
        everywhere = range(PARTITIONS)
        for number in everywhere:
            wait_for_isr(client, TOPIC, 3, number)
        # A new replica is in sync before its log is made.
        first = cluster.directory / cluster.state.broker(1).data_dir
        wait_until(
            lambda: len(held(first) | held(disk.path)) == PARTITIONS, "broker 1 has all logs"
        )
        on_disk = held(disk.path)
        assert 0 < len(on_disk) < PARTITIONS
        pid = cluster.state.broker(1).pid

        with steady_producer(cluster.bootstrap_servers) as acknowledged:

            def more() -> None:
                before = {number: len(acknowledged[number]) for number in everywhere}
                wait_until(
                    lambda: all(
                        len(acknowledged[n]) > before[n] + RECORDS_BETWEEN // PARTITIONS
                        for n in everywhere
                    ),
                    "every partition takes records",
                )

            more()
            disk.fail()
            for number in on_disk:
                wait_until(lambda number=number: is_left(client, number), f"{number} is left")
            more()
            for number in set(everywhere) - on_disk:
                wait_for_isr(client, TOPIC, 3, number)
            assert cluster.state.broker(1).pid == pid

            cluster.stop_broker(1)
            disk.repair()
            start_with_two_log_dirs(cluster, 1, disk.path)
            for number in everywhere:
                wait_for_isr(client, TOPIC, 3, number)
            more()
        cluster.down()

    stored = {
        number: [
            decode_batches(log_bytes(log_dir)).values.to_pylist()
            for log_dir in (tmp_path).glob(f"**/{TOPIC}-{number}")
        ]
        for number in everywhere
    }
    for number, replicas in stored.items():
        wanted = [b"%d" % value for value in acknowledged[number]]
        assert replicas == [wanted] * 3
