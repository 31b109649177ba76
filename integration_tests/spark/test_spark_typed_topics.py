"""Typed topics through Spark: columns are written and read back equal, and a running stream keeps
its columns. What does not fit is told by `integration_tests/connector/test_typed_rows_fit.py`.
Source: docs/spark.md, Typed topics."""

import json
import random

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import Row
from pyspark.sql import functions as F

from connector import ConnectorError, with_dead_letters
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.random_frames import random_frame
from integration_tests.support.spark_support import consume, produce
from storage_engine.client import Admin
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.tests.sampling import ALL_FAULTS, SEED

FRAMES = 40 if ALL_FAULTS else 2
TRIPS = "id BIGINT NOT NULL, fare DOUBLE, name STRING, at TIMESTAMP"
SCHEMA = "headrace.schema"


def _create(cluster, topic, ddl=TRIPS, key=("id",), partitions=2):
    schema = new_schema(parse_ddl(ddl), key)
    create_topic(cluster, topic, partitions=partitions, config={SCHEMA: schema.to_json()})
    return schema


def _read(spark, servers, subscribed, **options):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", subscribed).options(**options).load()


def _write(frame, servers, **options):
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def _trips(spark, first, last):
    return spark.range(first, last).select(
        "id",
        (F.col("id") / 2).alias("fare"),
        F.when(F.col("id") % 3 != 0, F.concat(F.lit("n"), F.col("id") % 5)).alias("name"),
        F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("at"),
    )


def _stream(spark, servers, subscribed, **options):
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", subscribed).option("startingOffsets", "earliest")
    return reader.options(**options).load()


@pytest.mark.parametrize("number", range(FRAMES))
def test_frames_of_any_types_are_read_back_as_they_were_written(spark, servers, topic, number):
    chance = random.Random(SEED * 1000 + number)
    rows = 0 if number and number % 7 == 0 else chance.choice([1, 100, 300])
    frame = random_frame(spark, chance, columns=20, rows=rows)
    _write(frame, servers, topic=topic, createTopic="true", **{"topic.key": "n"})
    read = _read(spark, servers, topic)
    assert_df_equality(read.orderBy("n"), frame.orderBy("n"), ignore_nullable=True)


def test_columns_of_any_name_are_written_and_read_beside_the_origin(spark, servers, topic):
    """MongoDB's and Debezium's names; two that only a fold of Unicode's takes for one."""
    frame = spark.sql(
        "SELECT 'x' AS `_id`, 'f' AS `__deleted`, 1 AS `maße`, 2 AS masse, "
        "named_struct('_id', 3) AS doc, timestamp'1969-12-31 23:59:59.9995Z' AS _timestamp"
    )
    _write(frame, servers, topic=topic, createTopic="true", **{"topic.key": "_id"})
    read = _read(spark, servers, topic, columns="_id,__deleted,maße,masse,doc,_offset,_timestamp")
    (row,) = read.collect()
    assert tuple(row)[:6] == ("x", "f", 1, 2, Row(_id=3), 0)
    assert read.selectExpr("unix_millis(_timestamp)").collect()[0][0] == -1


def test_some_columns_some_rows_and_where_they_come_from(spark, spark_cluster, servers, topic):
    _create(spark_cluster, topic)
    _write(_trips(spark, 0, 3000).repartition(2), servers, topic=topic)
    some = _read(spark, servers, topic, columns="name,ID", where="id >= 2990 AND name IS NOT NULL")
    expected = _trips(spark, 2990, 3000).where("name is not null").select("name", "id")
    assert_df_equality(some.orderBy("id"), expected, ignore_nullable=True)
    late = _read(spark, servers, topic, where="at >= TIMESTAMP '2023-11-15 00:03:10+01:00'")
    assert {row.id for row in late.select("id").collect()} == set(range(2990, 3000))
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).schema("Fare DOUBLE, _partition INT, id BIGINT")
    place = _read(spark, servers, topic, columns="id,_topic,_partition,_offset,_timestamp")
    assert place.agg(F.count_distinct("_partition", "_offset")).first()[0] == 3000
    assert place.where(f"_topic <> '{topic}' OR _timestamp IS NULL").count() == 0
    # Rows go where Kafka's clients send their keys as text.
    keys = pa.array([b"%d" % number for number in range(50)], pa.binary())
    expected = dict(enumerate(partitions_for_keys(keys, 2).tolist()))
    found = reader.load().where("id < 50").collect()
    assert {row.id: row._partition for row in found} == expected


def test_a_running_stream_keeps_its_columns_and_writes_each_row_once(
    spark, spark_cluster, servers, topic, tmp_path
):
    schema = _create(spark_cluster, topic)
    target = f"{topic}-copy"
    _create(spark_cluster, target)
    _write(_trips(spark, 0, 100), servers, topic=topic)

    def start(source):
        keyed = {"sinkId": target, "idempotentKey": "from,part,at_offset"}
        return (
            source.withColumnsRenamed(
                {"_topic": "from", "_partition": "part", "_offset": "at_offset"}
            )
            .writeStream.format("headrace")
            .option("kafka.bootstrap.servers", servers)
            .options(topic=target, checkpointLocation=str(tmp_path / "checkpoint"), **keyed)
            .start()
        )

    columns = "id,fare,name,at,_topic,_partition,_offset"
    query = start(_stream(spark, servers, topic, columns=columns))
    try:
        query.processAllAvailable()
        newer = schema.evolved(parse_ddl(f"{TRIPS}, tip INT"))
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.alter_topic_configs(topic, {SCHEMA: newer.to_json()})
            # The leader that is asked goes by it; the other does when Spark has planned the job.
            wait_until(
                lambda: admin.describe_schemas([topic])[topic].schema == newer,
                "the schema is known",
            )
        tipped = _trips(spark, 100, 200).withColumn("tip", F.lit(7))
        _write(tipped, servers, topic=topic)
        query.processAllAvailable()
    finally:
        query.stop()
    assert_df_equality(
        _read(spark, servers, target).orderBy("id"), _trips(spark, 0, 200), ignore_nullable=True
    )
    read = _read(spark, servers, topic)
    expected = _trips(spark, 0, 200).withColumn("tip", F.when(F.col("id") >= 100, F.lit(7)))
    assert_df_equality(read.orderBy("id"), expected, ignore_nullable=True)
    # A query without its checkpoint finds all rows written.
    query = start(_stream(spark, servers, topic, columns=columns))
    query.stop()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    query = start(_stream(spark, servers, topic, columns=columns, where="id >= 50"))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert _read(spark, servers, target, columns="id").count() == 200


def test_rejected_rows_become_letters_and_accepted_ones_rows_of_another_typed_topic(
    spark, spark_cluster, servers, topic
):
    _create(spark_cluster, topic)
    target, letters = f"{topic}-fit", f"{topic}-letters"
    _create(spark_cluster, target)
    create_topic(spark_cluster, letters)
    _write(_trips(spark, 0, 10), servers, topic=topic)
    place = "_topic,_partition,_offset,_timestamp"
    read = _read(spark, servers, topic, columns=f"id,fare,name,at,{place}")
    given = {
        "reason": F.when(F.col("id") >= 7, "too late"),
        "topic": letters,
        "accepted": {
            "topic": F.lit(target),
            "key": F.col("id").cast("string"),
            "value": F.to_json(F.struct("id", "fare", "name")),
        },
    }
    for columns in ([], ["fare", "_offset"], ["nothing"]):
        with pytest.raises(ConnectorError, match="dead letter"):
            with_dead_letters(read, **given, columns=columns)
    rows = with_dead_letters(read, **given)
    _write(rows, servers)
    expected = _trips(spark, 0, 7).drop("at")
    read = _read(spark, servers, target, columns="id,fare,name")
    assert_df_equality(read.orderBy("id"), expected, ignore_nullable=True)
    found = sorted((json.loads(each.value()) for each in consume(servers, letters)), key=str)
    assert found == [
        {"id": 7, "fare": 3.5, "name": "n2", "at": "2023-11-14T22:13:27.000000Z"},
        {"id": 8, "fare": 4.0, "name": "n3", "at": "2023-11-14T22:13:28.000000Z"},
        {"id": 9, "fare": 4.5, "at": "2023-11-14T22:13:29.000000Z"},
    ]
    # They are rows again when they are sent back.
    produce(servers, target, ({"value": each.value()} for each in consume(servers, letters)))
    assert_df_equality(
        _read(spark, servers, target, where="id >= 7").orderBy("id"),
        _trips(spark, 7, 10),
        ignore_nullable=True,
    )
