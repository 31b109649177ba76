"""`idempotentKey` with a real Spark: a query that loses its checkpoint, or is put back, writes
every record of its source once, also when driver and coordinator are killed. Batch writes, and
topics that are created again, are tested without a JVM in
`integration_tests/connector/test_sink_writes_batches.py`. Source: R-SPARK3.
"""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from integration_tests.spark.sink_driver_support import (
    STATE,
    committed,
    driver,
    ids,
    once,
    prepared,
)
from integration_tests.spark.spark_sink_driver import PER_BATCH
from integration_tests.support.cluster_support import (
    COORDINATOR_PARTITIONS,
    admin,
    create_topic,
    leader_of,
)
from integration_tests.support.spark_support import (
    QUERY_TIMEOUT_S,
    consume,
    last_line,
    needs_limits,
    per_batch,
    produce,
)
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.tests.sampling import in_full


def copy(spark, servers, topic, checkpoint, **options):
    """Copies all records to `<topic>-target`, straight from the source's own columns."""
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .select("value", "topic", "partition", "offset")
    )
    query = (
        rows.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{topic}-target")
        .option("sinkId", f"{topic}-target")
        .option("idempotentKey", "topic,partition,offset")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        query.stop()


def more(servers, topic, first, last):
    produce(servers, topic, ({"value": b"%d" % number} for number in range(first, last)))


def read(servers, topic):
    return sorted(int(each.value()) for each in consume(servers, f"{topic}-target"))


@in_full
@needs_limits
def test_a_driver_that_is_killed_after_a_commit_and_loses_its_checkpoint_doubles_nothing(
    spark, spark_cluster, servers, topic, tmp_path
):
    prepared(spark_cluster, topic, 3)
    (tmp_path / "after-commit-1").touch()
    with driver(servers, topic, tmp_path, min_partitions=2, keyed=True) as first:
        first.reaches("batch 1 is committed")
    assert not committed(tmp_path, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    # Its batch 0 is those that are written, and a third.
    copy(spark, servers, topic, tmp_path / "second", minPartitions=5)
    assert ids(servers, topic) == once(3)
    # Not even as part of an aborted transaction.
    assert ids(servers, topic, isolation="read_uncommitted").total() == 3 * PER_BATCH


def test_a_query_that_begins_anew_writes_what_is_new_and_one_that_is_put_back_is_refused(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=6)
    create_topic(spark_cluster, f"{topic}-target", partitions=2)
    more(servers, topic, 0, 100)
    copy(spark, servers, topic, tmp_path / "now", minRecordsPerPartition=1)
    shutil.copytree(tmp_path / "now", tmp_path / "then")
    more(servers, topic, 100, 200)
    copy(spark, servers, topic, tmp_path / "now")
    more(servers, topic, 200, 300)
    # Its next batch has the number of one that is committed, and rows that are not.
    with pytest.raises(StreamingQueryException) as raised:
        copy(spark, servers, topic, tmp_path / "then")
    assert "[CHECKPOINT_REWOUND]" in last_line(raised.value)
    sink = f"{topic}-target"
    coordinator = leader_of(
        admin(spark_cluster), STATE, state_partition(sink, COORDINATOR_PARTITIONS)
    )
    spark_cluster.kill_broker(coordinator)
    # With other micro-batches, so that one of them is written in part, and with tasks that read
    # several partitions, where there was one for each.
    copy(spark, servers, topic, tmp_path / "new", **per_batch(150), minPartitions=2)
    spark_cluster.start_broker(coordinator)
    assert read(servers, topic) == list(range(300))


@in_full
def test_a_topic_that_is_created_again_is_another_source(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic)
    create_topic(spark_cluster, f"{topic}-target")
    more(servers, topic, 0, 100)
    copy(spark, servers, topic, tmp_path / "first")
    client = admin(spark_cluster)
    client.delete_topics([topic], request_timeout=60)[topic].result(90)
    create_topic(spark_cluster, topic)
    more(servers, topic, 100, 150)
    copy(spark, servers, topic, tmp_path / "second")
    assert read(servers, topic) == list(range(150))
