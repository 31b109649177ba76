"""Makes `<release>.tar.gz`: what a cluster of one broker and a streaming query of that release
leave behind, and what later versions must find in it.

    .venv/bin/python -m integration_tests.kept_data.make 0.1.0

It runs the code of the folder that it is started in.

    broker/         the log dir: checkpoints, segments, indexes, producer snapshots
    zookeeper/      the data of the cluster's ZooKeeper
    checkpoint/     of a query that copies `orders` to `copies`, one micro-batch of which it has
                    committed without noting that in the checkpoint: a restart must replay that one
    described.json  what clients see of every partition

The topics: `compacted` (cleaned), `transactional` (a committed, an aborted and another committed
transaction), `unfinished` (one that nobody ended), `orders` (from an idempotent producer, read by a
group), `copies` and `typed` (rows by a schema of two versions). Nothing in them is ever too old:
`retention.ms=-1`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from pyspark.sql import SparkSession

from integration_tests.kept_data.kept_cluster import DESCRIPTION, HERE, SETTINGS
from integration_tests.support.cluster_support import (
    DEADLINE_S,
    create_topic,
    running_cluster,
    wait_until,
)
from integration_tests.support.spark_support import consume, new_session, produce
from storage_engine.client import Admin, NewTopic
from storage_engine.client import Producer as OurProducer
from storage_engine.client.admin.transaction_states import describe_producers
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition

MAKING = (*SETTINGS, ("log.cleaner.backoff.ms", "200"))
FOREVER = {"retention.ms": "-1"}
COMPACTED = {
    **FOREVER,
    "cleanup.policy": "compact",
    "segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
PARTITIONS = {"compacted": 1, "transactional": 1, "orders": 2, "copies": 2, "typed": 1}
UNFINISHED = "unfinished"
UNFINISHED_TIMEOUT_MS = 60_000
GROUP = "readers"
TYPED = "typed"
ORDERS = 40
PER_MICRO_BATCH = 10


def main() -> None:
    """Makes the archive."""
    work = Path(tempfile.mkdtemp(prefix="kept-"))
    with running_cluster(work / "cluster", brokers=1, settings=MAKING) as cluster:
        for topic, partitions in PARTITIONS.items():
            if topic == TYPED:
                continue
            config = COMPACTED if topic == "compacted" else FOREVER
            create_topic(cluster, topic, partitions=partitions, replication_factor=1, config=config)
        _fill_compacted(cluster.bootstrap_servers, work / "cluster")
        _fill_transactional(cluster.bootstrap_servers)
        fill_orders(cluster.bootstrap_servers, range(ORDERS))
        _fill_typed(cluster.bootstrap_servers)
        _commit_offsets(cluster.bootstrap_servers)
        spark = new_session("headrace-kept")
        copy_orders(spark, cluster.bootstrap_servers, work / "checkpoint")
        spark.stop()
        # The next leader epoch.
        cluster.stop_broker(1)
        cluster.start_broker(1)
        found = describe(cluster.bootstrap_servers)
        create_topic(cluster, UNFINISHED, replication_factor=1, config=FOREVER)
        left_open = _begin_transaction(cluster.bootstrap_servers)
    del left_open
    _forget_last_micro_batch(work / "checkpoint")
    (work / DESCRIPTION).write_text(json.dumps(found))
    _pack(work, HERE / f"{sys.argv[1]}.tar.gz")
    shutil.rmtree(work)


def _fill_compacted(servers: str, folder: Path) -> None:
    """Segments of 2 KiB, of which all but the newest have been cleaned."""
    for version in range(8):
        produce(
            servers,
            "compacted",
            [{"key": f"key-{n}", "value": f"value {version} of {n} " + "." * 60} for n in range(8)],
        )
    checkpoint = folder / "broker-1" / "data" / "cleaner-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and "compacted" in checkpoint.read_text(), "compaction")
    rows = wait_until(
        lambda: (rows := consume(servers, "compacted")) and len(rows) < 40 and rows, "compaction"
    )
    assert {row.key() for row in rows} == {b"key-%d" % n for n in range(8)}


def _fill_transactional(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "kept"})
    producer.init_transactions(DEADLINE_S)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        if number == 3:
            break
        producer.begin_transaction()
        for row in range(5):
            producer.produce("transactional", key=b"%d" % row, value=b"transaction %d" % number)
        assert producer.flush(DEADLINE_S) == 0
        ends(DEADLINE_S)


def _begin_transaction(servers: str) -> Producer:
    """It ends by its timeout, which nobody waits for here."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": UNFINISHED,
            "transaction.timeout.ms": UNFINISHED_TIMEOUT_MS,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(UNFINISHED, b"row")
    assert producer.flush(DEADLINE_S) == 0
    return producer


def fill_orders(servers: str, numbers: Iterable[int]) -> None:
    """Orders of these numbers, by an idempotent producer, to both partitions in turn."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for n in numbers:
        producer.produce("orders", key=f"{n}", value=f"order {n}", partition=n % 2)
    assert producer.flush(DEADLINE_S) == 0


def _fill_typed(servers: str) -> None:
    """Rows of one version, and of the next."""
    with Admin({"bootstrap.servers": servers}) as admin:
        made = NewTopic(name=TYPED, partitions=1, replication_factor=1, configs=FOREVER)
        admin.create_topics([made], schema="id BIGINT NOT NULL, name STRING", key=["id"])
        _write_typed(servers, [{"id": 1, "name": "one"}])
        admin.alter_schema(TYPED, "id BIGINT NOT NULL, name STRING, place STRUCT<x: BIGINT>")
        _write_typed(servers, [{"id": 2, "name": None, "place": {"x": 7}}])


def _write_typed(servers: str, rows: list[dict[str, Any]]) -> None:
    with OurProducer({"bootstrap.servers": servers}) as producer:
        producer.send_table(TYPED, pa.Table.from_pylist(rows))
        producer.flush()


def _commit_offsets(servers: str) -> None:
    reader = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    reader.commit(offsets=[ConfluentPartition("orders", 1, 7)], asynchronous=False)
    reader.close()


LIMITS = {"maxOffsetsPerTrigger": PER_MICRO_BATCH}


def copy_orders(
    spark: SparkSession, servers: str, checkpoint: Path, *, limits: Mapping[str, int] = LIMITS
) -> None:
    """Runs the query until it has copied all orders that there are."""
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .options(**limits)
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "copies")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _forget_last_micro_batch(checkpoint: Path) -> None:
    """As if the driver had died between the commit of the sink and Spark's own."""
    numbers = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    assert max(numbers) == ORDERS // PER_MICRO_BATCH - 1
    for path in (f"{max(numbers)}", f".{max(numbers)}.crc"):
        (checkpoint / "commits" / path).unlink()


def describe(servers: str) -> dict[str, Any]:
    """What clients see of every partition that is kept."""
    partitions = [TopicPartition(t, p) for t, count in PARTITIONS.items() for p in range(count)]
    with Cluster(servers) as cluster:
        producers = describe_producers(cluster, partitions)
        ends = {
            at: cluster.list_offsets(dict.fromkeys(partitions, special))
            for at, special in (("start", -2), ("end", -1))
        }
    committed, everything = (
        {topic: consume(servers, topic, isolation=isolation) for topic in PARTITIONS}
        for isolation in ("read_committed", "read_uncommitted")
    )
    found: dict[str, Any] = {}
    for tp in partitions:
        found[str(tp)] = {
            "log_start_offset": ends["start"][tp],
            "log_end_offset": ends["end"][tp],
            "producers": [asdict(each) for each in producers[tp]],
            "committed": _rows(committed[tp.topic], tp),
            "all": _rows(everything[tp.topic], tp),
        }
    return found


def _rows(of_topic: list[Message], tp: TopicPartition) -> list[list[Any]]:
    """(offset, key, value, timestamp) of each, in their order."""
    return sorted(
        [row.offset(), row.key().decode(), row.value().decode(), row.timestamp()[1]]
        for row in of_topic
        if row.partition() == tp.partition
    )


def _pack(work: Path, archive: Path) -> None:
    kept = tempfile.mkdtemp(prefix="kept-")
    shutil.copytree(work / "cluster" / "broker-1" / "data", Path(kept, "broker"))
    shutil.copytree(work / "cluster" / "zookeeper" / "version-2", Path(kept, "zookeeper"))
    shutil.copytree(work / "checkpoint", Path(kept, "checkpoint"))
    shutil.copy(work / DESCRIPTION, kept)
    subprocess.run(
        ["tar", "--sort=name", "--owner=0", "--group=0", "-czf", str(archive), "-C", kept, "."],
        check=True,
    )
    shutil.rmtree(kept)


if __name__ == "__main__":
    main()
