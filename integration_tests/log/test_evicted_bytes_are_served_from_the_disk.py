"""R-LOG5: bytes that left the page cache come from the disk, all and in order."""

import os
import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.metrics.scraping import scrape, total
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.tools.local.local_cluster import LocalCluster

VALUES = 400
VALUE_BYTES = 50_000
SEED = 5
ROUNDS = 10


def evict(folder: Path) -> list[Path]:
    """Take the segment files of a partition out of the page cache; those files."""
    files = sorted(folder.glob("*.log"))
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return files


def is_cached(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return REAL_DISK.is_cached(descriptor, path.stat().st_size, 0)
    finally:
        os.close(descriptor)


@pytest.fixture
def forgetful(tmp_path: Path) -> Path:
    """A folder whose file system forgets what it is told to: one in memory does not, nor do those
    that can't tell what they have there."""
    probe = tmp_path / "probe.log"
    probe.write_bytes(bytes(1 << 20))

    def is_evicted() -> bool:
        return not any(is_cached(path) for path in evict(tmp_path))

    try:
        wait_until(is_evicted, "a file leaves the page cache", timeout_s=10)
    except AssertionError:
        pytest.skip(f"the file system of {tmp_path} does not forget what it has read")
    probe.unlink()
    return tmp_path


def test_a_consumer_gets_every_byte_of_an_evicted_log_in_order(forgetful):
    values = [random.Random(SEED + n).randbytes(VALUE_BYTES) for n in range(VALUES)]
    with running_cluster(forgetful, brokers=1) as cluster:
        config = {"segment.bytes": str(4 << 20)}
        create_topic(cluster, "cold", replication_factor=1, config=config)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for value in values:
            producer.produce("cold", value)
            producer.poll(0)
        assert producer.flush(60) == 0

        # A kernel may read ahead as soon as it is asked whether bytes are in the page cache, and a
        # fast disk may have brought all of them before a thread begins.
        for _ in range(ROUNDS):
            first = evict_closed_segments(forgetful)
            assert consume(cluster) == values
            assert is_cached(first)
            if total(scrape(cluster), "headrace_cold_fetch_loads_total"):
                return
        raise AssertionError("the event loop left no wait for the disk to other threads")


def evict_closed_segments(folder: Path) -> Path:
    """The first of the segment files."""

    def evicted() -> list[Path] | None:
        # What is being written back stays in the page cache.
        files = evict(next(folder.rglob("cold-0")))
        assert len(files) > 3
        return None if any(is_cached(path) for path in files[:-1]) else files

    files = wait_until(evicted, "the closed segments are out of the page cache")
    assert files is not None
    return files[0]


def consume(cluster: LocalCluster) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("cold", 0, 0)])
    found: list[bytes | None] = []
    while len(found) < VALUES:
        messages = consumer.consume(VALUES, timeout=60)
        assert messages, f"{len(found)} of {VALUES} records came"
        assert not any(message.error() for message in messages)
        found += [message.value() for message in messages]
    consumer.close()
    return found
