"""Batch reads and writes through Spark, judged by confluent-kafka: columns, tasks, jobs that fail,
SQL, and bad input in one line. What the connector does by itself, whatever runs it, is tested
without a JVM in `integration_tests/connector`.
"""

import contextlib
import json

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import (
    QUERY_TIMEOUT_S,
    consume,
    last_line,
    per_batch,
    produce,
)
from storage_engine.tests.sampling import in_full

TIME_MS = 1_700_000_000_123


def _read(spark, servers, subscribed, **options):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", subscribed).options(**options).load()


def _write(frame, servers, **options):
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def test_every_column_of_a_record_is_read_as_it_was_produced(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2, config={"retention.ms": "-1"})
    produce(
        servers,
        topic,
        [
            {
                "key": b"k\x00",
                "value": b"\xff1",
                "partition": 1,
                "timestamp": TIME_MS,
                "headers": [("h", b"x"), ("h", None), ("ü", b"")],
            },
            {"key": None, "value": None, "partition": 1, "timestamp": TIME_MS + 1},
            {"key": b"", "value": b"", "partition": 0, "timestamp": TIME_MS + 2},
        ],
    )
    expected = spark.createDataFrame(
        [
            (bytearray(), bytearray(), topic, 0, 0, TIME_MS + 2, 0, None),
            (
                bytearray(b"k\x00"),
                bytearray(b"\xff1"),
                topic,
                1,
                0,
                TIME_MS,
                0,
                [("h", bytearray(b"x")), ("h", None), ("ü", bytearray())],
            ),
            (None, None, topic, 1, 1, TIME_MS + 1, 0, None),
        ],
        "key binary, value binary, topic string, partition int, offset bigint, ms bigint, "
        "timestampType int, headers array<struct<key:string,value:binary>>",
    ).select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        F.timestamp_millis("ms").alias("timestamp"),
        "timestampType",
        "headers",
    )
    read = _read(spark, servers, topic, includeHeaders="true")
    assert_df_equality(read.orderBy("partition", "offset"), expected, ignore_nullable=True)


def test_rows_written_are_read_by_another_client_byte_for_byte(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=3)
    frame = spark.range(2000).select(
        F.when(F.col("id") % 10 != 0, F.concat(F.lit("key"), F.col("id") % 17)).alias("key"),
        F.when(F.col("id") % 100 != 7, F.repeat(F.col("id").cast("string"), 3)).alias("value"),
        F.when(
            F.col("id") % 3 == 0,
            F.array(
                F.struct(F.lit("h").alias("key"), F.lit("x").cast("binary").alias("value")),
                F.struct(F.lit("h").alias("key"), F.lit(None).cast("binary").alias("value")),
            ),
        ).alias("headers"),
    )
    _write(frame, servers, topic=topic, **{"kafka.compression.type": "zstd"})
    expected = [
        (
            f"key{number % 17}".encode() if number % 10 else None,
            (str(number) * 3).encode() if number % 100 != 7 else None,
            [("h", b"x"), ("h", None)] if number % 3 == 0 else None,
        )
        for number in range(2000)
    ]
    messages = consume(servers, topic)
    written = [(each.key(), each.value(), each.headers()) for each in messages]
    assert sorted(written, key=repr) == sorted(expected, key=repr)


def test_small_partitions_share_as_many_tasks_as_this_spark_runs_at_the_same_time(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=6)
    records = [{"value": b"v", "partition": number % 6} for number in range(1200)]
    produce(servers, topic, records)
    read = _read(spark, servers, topic)
    # The session's master is local[2].
    assert read.rdd.getNumPartitions() == 2
    assert read.select("partition", "offset").distinct().count() == read.count() == 1200
    one_each = _read(spark, servers, topic, minRecordsPerPartition="1")
    assert one_each.rdd.getNumPartitions() == 6


def test_an_empty_topic_is_read_as_no_rows_and_no_rows_are_written(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=2)
    assert _read(spark, servers, topic).count() == 0
    _write(spark.range(0).selectExpr("cast(id as string) as value"), servers, topic=topic)
    assert consume(servers, topic) == []


# --- bad input: one line that names the thing and the remedy


def test_a_wrong_source_option_is_told_when_the_frame_is_made(spark):
    with pytest.raises(AnalysisException) as raised:
        _read(spark, "h:1", "t", subscibe="x")
    assert last_line(raised.value) == (
        "[UNKNOWN_OPTION] 'subscibe' is not an option of the source; did you mean 'subscribe'?"
    )
    assert len(str(raised.value).splitlines()) <= 6


def test_a_wrong_write_is_told_before_anything_runs(spark, servers):
    with pytest.raises(AnalysisException) as raised:
        _write(spark.range(1).selectExpr("'v' as value"), servers, topic="t", acks="1")
    assert last_line(raised.value) == (
        "[BAD_OPTION] 'acks' = '1' can't be used with exactly-once: leave it out, or set "
        "deliveryGuarantee=at-least-once"
    )
    assert len(str(raised.value).splitlines()) <= 6


def test_an_error_of_the_plan_is_told(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=1)
    with pytest.raises(Exception) as raised:
        _read(spark, servers, topic, startingOffsets=json.dumps({topic: {"0": 5}})).count()
    assert last_line(raised.value).startswith(
        f"[DATA_LOSS] 'startingOffsets' names offset 5 of {topic}-0"
    )


def test_an_error_of_a_task_is_told(spark, servers):
    rows = spark.createDataFrame([("v", None)], "value string, topic string")
    with pytest.raises(Exception) as raised:
        _write(rows, servers)
    assert last_line(raised.value).startswith("[NULL_TOPIC] 1 of 1 rows have null")


@in_full
def test_foreach_batch_on_a_new_checkpoint_does_not_reuse_numbers(
    spark, spark_cluster, servers, topic, tmp_path
):
    """If it did, its rows would be dropped, since the numbers belong to the first query."""
    create_topic(spark_cluster, topic, partitions=1)

    def write(frame, number):
        _write(frame, servers, topic=topic, sinkId=topic, batchId=str(number))

    source = f"{topic}-source"
    create_topic(spark_cluster, source, partitions=1)

    def run(checkpoint):
        """Runs to the end of the source, in micro-batches of five where Spark limits them."""
        produce(servers, source, [{"value": b"%d" % number} for number in range(10)])
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
        reader = reader.options(subscribe=source, startingOffsets="earliest")
        rows = reader.options(**per_batch(5)).load().select("value")
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        with contextlib.suppress(StreamingQueryException):
            assert query.awaitTermination(QUERY_TIMEOUT_S)
        return query.exception()

    assert run("first") is None
    assert run("first") is None, "a restart is never refused"
    assert len(consume(servers, topic)) == 20
    assert "[BATCH_ID_TAKEN] " in str(run("second"))
    assert len(consume(servers, topic)) == 20


def test_a_job_that_fails_leaves_nothing_to_read(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=1)
    fails_late = "if(id = 19999, raise_error('late'), cast(id as string)) value"
    with pytest.raises(Exception, match="late"):
        _write(spark.range(0, 20_000, 1, 2).selectExpr(fails_late), servers, topic=topic)
    assert consume(servers, topic) == []
    # Its transactions were given up, so they hold up nobody.
    _write(spark.range(10).selectExpr("cast(id as string) value"), servers, topic=topic)
    assert len(consume(servers, topic)) == 10


def test_tables_and_views_of_sql_are_read_and_written(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic)
    produce(servers, topic, [{"value": b"1"}, {"value": b"2"}])
    place = f"'kafka.bootstrap.servers' {{0}} '{servers}'"
    options = f"OPTIONS ({place.format('')}, 'subscribe' '{topic}')"
    reads = f"SELECT count(*) FROM a WITH ({place.format('=')}, 'subscribe' = '{topic}')"
    inserts = f"INSERT INTO b WITH ({place.format('=')}, 'topic' = '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW v USING headrace {options}")
    spark.sql(f"CREATE TABLE a USING headrace {options} COMMENT 'of records'")
    spark.sql("CREATE TABLE b (value BINARY) USING headrace")
    try:
        assert spark.sql("SELECT count(*) FROM v").first()[0] == 2
        assert spark.sql(reads).first()[0] == 2
        spark.sql(f"{inserts} SELECT value FROM v LIMIT 1")
        assert spark.sql(reads).first()[0] == 3
        with pytest.raises(AnalysisException) as raised:
            spark.sql("SELECT * FROM a").collect()
        assert "for a table by each query, … FROM t WITH (" in last_line(raised.value)
    finally:
        spark.sql("DROP TABLE a")
        spark.sql("DROP TABLE b")
        spark.catalog.dropTempView("v")
