"""What a leader has acknowledged each reader reads: a few KB that unpack to very much more.

A client that we did not write sends them, in one batch each, which the log on the disk shows.
"""

import asyncio

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer as ConfluentProducer

from integration_tests.support.cluster_support import create_topic
from integration_tests.support.command_line import succeed
from storage_engine.client import AsyncConsumer, BulkReader, Consumer, TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.sampling import ALL_FAULTS

RECORDS = 140
ZEROS = bytes(1 << 20)
CODECS = ["gzip", "snappy", "lz4", "zstd"] if ALL_FAULTS else ["zstd"]


@pytest.fixture(scope="module", params=CODECS)
def large(request, spark_cluster):
    """The name of a topic with one batch of 140 MiB, unpacked, and a record behind it."""
    name = f"large-{request.param}"
    config = {
        "retention.ms": "-1",
        "max.message.bytes": "90000000",
        # A mirror gives such batches times of their own.
        "message.timestamp.type": "LogAppendTime",
    }
    create_topic(spark_cluster, name, config=config)
    producer = ConfluentProducer(
        {
            "bootstrap.servers": spark_cluster.bootstrap_servers,
            "compression.type": request.param,
            "batch.size": 400_000_000,
            "linger.ms": 5_000,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
        }
    )
    for _ in range(RECORDS):
        producer.produce(name, ZEROS)
    assert producer.flush(60) == 0
    producer.produce(name, b"behind")
    assert producer.flush(60) == 0
    (log, *_) = spark_cluster.directory.glob(f"broker-*/data/{name}-0/*.log")
    assert read_header(log.read_bytes()).records_count == RECORDS
    return name


def test_consumers_read_it_whole(servers, large):
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    tp = TopicPartition(large, 0)
    with Consumer(config) as consumer:
        consumer.assign([tp])
        offsets: list[int] = []
        while len(offsets) <= RECORDS:
            for record in consumer.poll(30_000):
                assert record.value == (b"behind" if record.offset == RECORDS else ZEROS)
                offsets.append(record.offset)
    assert offsets == list(range(RECORDS + 1))

    async def read() -> int:
        async with AsyncConsumer(config) as consumer:
            await consumer.assign([tp])
            found = 0
            while found <= RECORDS:
                found += len(await consumer.poll(30_000))
            return found

    assert asyncio.run(read()) == RECORDS + 1


def test_bulk_reads_and_exports_have_it_whole(servers, large, tmp_path):
    with BulkReader({"bootstrap.servers": servers}) as reader:
        (split,) = reader.splits([large])
        assert sum(batch.num_rows for batch in reader.read(split)) == RECORDS + 1
    succeed("export", large, "--bootstrap-server", servers, "--dir", tmp_path / "out")
    assert ds.dataset(tmp_path / "out", format="parquet").count_rows() == RECORDS + 1


def test_spark_reads_it_whole(spark, servers, large):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", large).load()
    found = frame.selectExpr("count(1)", "sum(length(value))").collect()
    assert [tuple(row) for row in found] == [(RECORDS + 1, RECORDS * len(ZEROS) + len(b"behind"))]


def test_a_mirror_copies_it_whole(servers, large):
    sides = ("--source", servers, "--target", servers, "--target-topic", "copy-{topic}")
    succeed("mirror", *sides, "--topics", large, "--exit-at-end", "--name", large)
    with BulkReader({"bootstrap.servers": servers}) as reader:
        (split,) = reader.splits([f"copy-{large}"])
        assert sum(batch.num_rows for batch in reader.read(split)) == RECORDS + 1
