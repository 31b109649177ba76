"""Spark copies a typed topic to another while clients that we did not write, and ours, fill it and
a leader is killed: librdkafka then reads the same bytes from both, in the same order."""

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import per_batch
from integration_tests.typed_topics.everyones_rows import (
    ARROW,
    PARTITIONS,
    SCHEMA,
    ByAiokafka,
    ByLibrdkafka,
    BySendTable,
    check_columns_are_the_json,
    check_each_row_is_there_once_and_in_order,
)
from integration_tests.typed_topics.test_everyone_sees_the_same_rows import written_through_a_kill
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.tests.sampling import in_full

LIMIT_S = 300.0


def committed(servers: str, topic: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """Partition, key and value of as many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    found: list[Any] = []

    def polled() -> bool:
        messages = [each for each in consumer.consume(1000, timeout=0.2) if each.error() is None]
        found.extend((each.partition(), each.key(), each.value()) for each in messages)
        return len(found) >= count

    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        wait_until(polled, f"{count} rows of {topic}", timeout_s=LIMIT_S)
        assert not consumer.consume(1, timeout=2), "more rows than there are"
    finally:
        consumer.close()
    return found


@in_full
def test_spark_copies_what_everyone_writes_through_a_kill_once_and_in_order(
    spark, spark_cluster, servers, topic, tmp_path
):
    target = f"{topic}-copy"
    config = {SCHEMA_SETTING: SCHEMA.to_json(), "min.insync.replicas": "2"}
    for name in (topic, target):
        create_topic(spark_cluster, name, partitions=PARTITIONS, config=config)
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", ",".join(["_partition", *ARROW.names]))
        .options(**per_batch(200))
        .load()
    )
    query = (
        rows.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .options(topic=target, sinkId=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        told = written_through_a_kill(spark_cluster, topic, [BySendTable, ByLibrdkafka, ByAiokafka])
        query.processAllAvailable()
    finally:
        query.stop()
    check_each_row_is_there_once_and_in_order(told.live, told.written)
    check_columns_are_the_json(told.columns, told.live)
    copied = committed(servers, target, len(told.live))
    for partition in range(PARTITIONS):
        assert [(key, value) for p, key, value in copied if p == partition] == [
            (each.key, each.value) for each in told.live if each.partition == partition
        ]
