"""KIP-98 on the wire: a real broker on log files with transactions in them, read by clients that we
did not write.

The coordinator that would write the markers is not needed for that: the files are made with the
log's own interface, as a leader does it.
"""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from integration_tests.support.cluster_support import create_topic, running_cluster
from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.core.ids import TopicPartition as Partition
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.net.event_loop_ports import SystemClock
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.log.transaction_support import abort, commit, write

TOPIC = "transfers"
PRODUCERS = (1, 2, 3, 4)


def fill(log: PartitionLog) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Interleaved transactions over several segments, one of them open at the end; all records,
    and those that are committed."""
    generator = random.Random(7)
    written: list[tuple[int, bytes]] = []
    committed: list[tuple[int, bytes]] = []
    pending: dict[int, list[tuple[int, bytes]]] = {producer: [] for producer in PRODUCERS}
    for number in range(800):
        producer = generator.choice((None, *PRODUCERS))
        if producer is not None and generator.random() < 0.2:
            if generator.random() < 0.5:
                commit(log, producer)
                committed += pending[producer]
            else:
                abort(log, producer)
            pending[producer] = []
            continue
        value = b"%d of %s" % (number, b"none" if producer is None else b"%d" % producer)
        record = write(log, producer, (b"key", value)), value
        written.append(record)
        (committed if producer is None else pending[producer]).append(record)
    for producer in PRODUCERS[:-1]:
        commit(log, producer)
        committed += pending[producer]
    abort(log, PRODUCERS[-1])
    return written, sorted(committed)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A broker that has been restarted on the files, and what is in them: all records, committed
    ones, those that read_committed may see, and the last stable offset."""
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory, brokers=1) as cluster:
        create_topic(cluster, TOPIC, replication_factor=1)
        cluster.stop_broker(1)
        folder = directory / "broker-1" / "data" / f"{TOPIC}-0"
        log = PartitionLog.open(
            folder, Partition(TOPIC, 0), LogConfig(segment_bytes=6000), clock=SystemClock()
        )
        written, committed = fill(log)
        stable = write(log, PRODUCERS[0], (b"key", b"open"))
        written.append((stable, b"open"))
        committed_after = write(log, None, (b"key", b"behind"))
        written.append((committed_after, b"behind"))
        assert log.segment_count > 5
        log.close()
        cluster.start_broker(1)
        yield cluster, written, committed, stable


def read_by_confluent(cluster, isolation: str, end: int) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.message.max.bytes": 4000,
            "enable.partition.eof": True,
        }
    )
    partition = TopicPartition(TOPIC, 0, 0)
    consumer.assign([partition])
    found: list[tuple[int, bytes]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF"
            break
        offset, value = message.offset(), message.value()
        assert offset is not None and isinstance(value, bytes)
        found.append((offset, value))
    assert message.offset() == end
    assert consumer.position([partition])[0].offset == end
    consumer.close()
    return found


def read_by_kafka_python(cluster, isolation: str, end: int) -> list[tuple[int, bytes]]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        isolation_level=isolation,
        max_partition_fetch_bytes=4000,
    )
    partition = KafkaPythonPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    assert consumer.end_offsets([partition])[partition] == end
    found = []
    # A poll that brings no record but moves the position behind markers lasts as long as it may.
    while consumer.position(partition) < end:
        for records in consumer.poll(500).values():
            found += [(record.offset, record.value) for record in records]
    consumer.close()
    return found


def read_by_ours(cluster, isolation: str, end: int) -> list[tuple[int, bytes]]:
    partition = Partition(TOPIC, 0)
    found: list[tuple[int, bytes]] = []
    with Cluster(cluster.bootstrap_servers) as client:
        latest = client.list_offsets({partition: LATEST}, isolation=isolation)
        assert latest == {partition: end}
        for fetched in read_range(client, partition, 0, end, max_bytes=4000, isolation=isolation):
            for piece in fetched.committed():
                rows = decode_batches(piece, start_offset=fetched.start_offset)
                found += zip(rows.offsets.to_pylist(), rows.values.to_pylist(), strict=True)
    return found


READERS = pytest.mark.parametrize("read", [read_by_confluent, read_by_kafka_python, read_by_ours])


@READERS
def test_read_committed_sees_no_aborted_no_open_and_no_control_record(served, read):
    cluster, _, committed, stable = served
    assert read(cluster, "read_committed", stable) == committed


@READERS
def test_read_uncommitted_sees_every_record_and_no_control_record(served, read):
    cluster, written, _, _ = served
    assert read(cluster, "read_uncommitted", written[-1][0] + 1) == written


def test_dump_log_shows_markers_and_aborted_transactions(served, capsys):
    from storage_engine.tools.cli import main

    cluster, *_ = served
    folder = Path(cluster.directory) / "broker-1" / "data" / f"{TOPIC}-0"
    files = [str(path) for path in sorted(folder.glob("*.txnindex")) if path.stat().st_size]
    assert len(files) > 3
    assert main(["dump-log", *files]) == 0
    assert "ok" in capsys.readouterr().out
