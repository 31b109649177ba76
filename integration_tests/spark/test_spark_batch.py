"""Batch reads and writes through Spark, judged by confluent-kafka, and bad input in one line."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import (
    QUERY_TIMEOUT_S,
    consume,
    first_offset,
    last_line,
    per_batch,
    produce,
)
from storage_engine.tests.sampling import ALL_FAULTS

SHORT_RETENTION = {"segment.bytes": "20000", "retention.bytes": "30000"}


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

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


@pytest.mark.parametrize("compression", CODECS if ALL_FAULTS else ["none", "zstd"])
def test_rows_written_are_read_by_another_client_byte_for_byte(
    spark, spark_cluster, servers, topic, compression
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
    _write(frame, servers, topic=topic, **{"kafka.compression.type": compression})
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
    partition_of_key = {each.key(): each.partition() for each in messages if each.key()}
    assert all(partition_of_key[each.key()] == each.partition() for each in messages if each.key())


def test_keys_go_to_the_partition_that_kafkas_java_client_chooses(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=5)
    keys = [f"airport-{number}" for number in range(50)]
    _write(spark.createDataFrame([(key, key) for key in keys], "key string, value string"),
           servers, topic=topic)  # fmt: skip
    ours = {each.key(): each.partition() for each in consume(servers, topic)}
    theirs_topic = f"{topic}-theirs"
    create_topic(spark_cluster, theirs_topic, partitions=5)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs_topic, key=key.encode(), value=b"v")
    assert producer.flush(30) == 0
    theirs = {each.key(): each.partition() for each in consume(servers, theirs_topic)}
    assert ours == theirs


def test_topic_and_partition_columns_say_where_a_row_goes(spark, spark_cluster, servers, topic):
    other = f"{topic}-other"
    create_topic(spark_cluster, topic, partitions=2)
    create_topic(spark_cluster, other, partitions=3)
    frame = spark.createDataFrame(
        [("a", topic, 1), ("b", other, 2), ("c", topic, 0)],
        "value string, topic string, partition int",
    )
    _write(frame, servers)
    found = {
        (each.topic(), each.partition(), each.value())
        for name in (topic, other)
        for each in consume(servers, name)
    }
    assert found == {(topic, 1, b"a"), (other, 2, b"b"), (topic, 0, b"c")}


def test_starting_and_ending_offsets_bound_a_read(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=1)
    produce(servers, topic, [{"value": str(number).encode()} for number in range(100)])
    starting = json.dumps({topic: {"0": 10}})
    ending = json.dumps({topic: {"0": 15}})
    read = _read(spark, servers, topic, startingOffsets=starting, endingOffsets=ending)
    expected = spark.createDataFrame([(number,) for number in range(10, 15)], "offset bigint")
    assert_df_equality(read.select("offset").orderBy("offset"), expected, ignore_nullable=True)


def test_assign_pattern_and_timestamps_choose_what_is_read(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2, config={"retention.ms": "-1"})
    produce(
        servers,
        topic,
        [
            {"value": b"v", "partition": number % 2, "timestamp": TIME_MS + number}
            for number in range(20)
        ],
    )
    reader = spark.read.format("headrace").option("bootstrap.servers", servers)
    assert reader.option("assign", json.dumps({topic: [1]})).load().count() == 10
    reader = spark.read.format("headrace").option("bootstrap.servers", servers)
    assert reader.option("subscribePattern", f"{topic[:-1]}.").load().count() == 20
    late = _read(spark, servers, topic, startingTimestamp=str(TIME_MS + 16))
    assert late.count() == 4
    none = _read(
        spark,
        servers,
        topic,
        startingTimestamp=str(TIME_MS + 10**9),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert none.count() == 0


def test_a_partition_is_split_over_tasks_without_losing_or_doubling_a_record(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=1)
    produce(servers, topic, [{"value": b"v"} for _ in range(1000)])
    read = _read(spark, servers, topic, minPartitions="4")
    assert read.rdd.getNumPartitions() == 4
    assert read.select("offset").distinct().count() == read.count() == 1000


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


def test_records_that_retention_took_are_a_loss_or_are_stepped_over(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=1, config=SHORT_RETENTION)
    for _ in range(10):
        produce(servers, topic, [{"value": b"x" * 1000} for _ in range(10)])
    starting = json.dumps({topic: {"0": 0}})
    wait_until(lambda: first_offset(servers, topic) > 0, "retention deletes the first segment")
    with pytest.raises(Exception) as raised:
        _read(spark, servers, topic, startingOffsets=starting).count()
    assert last_line(raised.value).startswith(
        f"[DATA_LOSS] 'startingOffsets' names offset 0 of {topic}-0, which has the offsets from "
    )
    lenient = _read(spark, servers, topic, startingOffsets=starting, failOnDataLoss="false")
    assert 0 < lenient.count() < 100


# --- bad input: one line that names the thing and the remedy


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"subscibe": "x"},
            "[UNKNOWN_OPTION] 'subscibe' is not an option of the source; did you mean 'subscribe'?",
        ),
        (
            {"startingOffsets": "soon"},
            "[BAD_OPTION] 'startingOffsets' must be 'earliest', 'latest' or JSON such as "
            """{"topic":{"0":23,"1":-2}}, not 'soon'""",
        ),
        ({"topic": "x"}, "[WRONG_OPTION] 'topic' is an option of the sink, not of the source"),
    ],
)
def test_a_wrong_source_option_is_told_when_the_frame_is_made(spark, options, line):
    with pytest.raises(AnalysisException) as raised:
        _read(spark, "h:1", "t", **options)
    assert last_line(raised.value) == line
    assert len(str(raised.value).splitlines()) <= 6


@pytest.mark.parametrize(
    ("frame", "options", "line"),
    [
        (
            "'v' as value",
            {"topic": "t", "acks": "1"},
            "[BAD_OPTION] 'acks' = '1' can't be used with exactly-once: leave it out, or set "
            "deliveryGuarantee=at-least-once",
        ),
        (
            "'v' as value",
            {},
            "[MISSING_OPTION] no topic is given: set the option 'topic' or add a column 'topic'",
        ),
        (
            "1 as value",
            {"topic": "t"},
            "[BAD_COLUMN] the column 'value' must be string or binary, not int; cast it",
        ),
    ],
)
def test_a_wrong_write_is_told_before_anything_runs(spark, servers, frame, options, line):
    with pytest.raises(AnalysisException) as raised:
        _write(spark.range(1).selectExpr(frame), servers, **options)
    assert last_line(raised.value) == line
    assert len(str(raised.value).splitlines()) <= 6


def test_a_topic_that_does_not_exist_is_told(spark, servers):
    with pytest.raises(Exception) as raised:
        _read(spark, servers, "nowhere").count()
    assert last_line(raised.value).startswith("[UNKNOWN_TOPIC] no topic nowhere on 127.0.0.1:")
    with pytest.raises(Exception) as raised:
        _write(spark.range(1).selectExpr("'v' as value"), servers, topic="nowhere")
    assert "topic 'nowhere' does not exist" in last_line(raised.value)


def test_brokers_that_are_not_there_are_told_with_their_addresses(spark):
    with pytest.raises(Exception) as raised:
        _read(spark, "127.0.0.1:9", "t", **{"kafka.request.timeout.ms": "1000"}).count()
    assert "127.0.0.1:9" in last_line(raised.value)


def test_rows_that_cannot_be_written_are_told(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2, config={"max.message.bytes": "2000"})
    null_topic = spark.createDataFrame([("v", None)], "value string, topic string")
    with pytest.raises(Exception) as raised:
        _write(null_topic, servers)
    assert last_line(raised.value).startswith("[NULL_TOPIC] 1 of 1 rows have null")
    no_partition = spark.createDataFrame([("v", 7)], "value string, partition int")
    with pytest.raises(Exception) as raised:
        _write(no_partition, servers, topic=topic)
    assert f"names partition 7 of the topic '{topic}', which has partitions 0 to 1" in last_line(
        raised.value
    )
    too_large = spark.range(1).select(F.repeat(F.lit("x"), 3000).alias("value"))
    with pytest.raises(Exception) as raised:
        _write(too_large, servers, topic=topic)
    assert "larger than the topic's max.message.bytes" in last_line(raised.value)
    too_large = spark.range(1).select(F.repeat(F.lit("x"), 30000).alias("value"))
    with pytest.raises(Exception) as raised:
        _write(too_large, servers, topic=topic)
    assert "a record takes 30072 bytes, and the topic's max.message.bytes is 2000" in last_line(
        raised.value
    )
    assert consume(servers, topic) == []


def test_a_named_batch_is_written_once_however_often_it_is_repeated(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=2)
    for batch, first in ((7, 0), (7, 0), (8, 100), (7, 0)):
        frame = spark.range(first, first + 100).selectExpr("cast(id as string) value")
        _write(frame, servers, topic=topic, sinkId=topic, batchId=str(batch))
    assert sorted(int(each.value() or b"") for each in consume(servers, topic)) == list(range(200))
    assert _read(spark, servers, topic).count() == 200


@pytest.mark.parametrize("order", [(5, 6), (6, 5)])
def test_two_named_jobs_at_once_both_count_and_so_does_a_lower_number(
    spark, spark_cluster, servers, topic, order
):
    create_topic(spark_cluster, topic, partitions=2)
    rounds = 20 if ALL_FAULTS else 1
    for each_round in range(rounds):
        named = {"topic": topic, "sinkId": f"{topic}-{each_round}"}

        def write(number: int, rows: int = 100, named=named) -> None:
            # This makes the session the thread's own, by which Spark finds formats in Python.
            values = [(f"{number} {row}",) for row in range(rows)]
            frame = spark.createDataFrame(values, "value string")
            _write(frame, servers, batchId=str(number), **named)

        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(write, number) for number in order]:
                done.result()
        write(3)
        write(6, rows=7)
    found = [(each.value() or b"").decode() for each in consume(servers, topic)]
    assert sorted(found) == sorted(
        f"{number} {row}" for number in (3, 5, 6) for row in range(100) for _ in range(rounds)
    )


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


def test_many_small_records_fit_a_topic_with_a_small_limit(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2, config={"max.message.bytes": "2000"})
    _write(spark.range(20000).selectExpr("cast(id as string) value"), servers, topic=topic)
    assert len(consume(servers, topic)) == 20000


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


def test_only_the_columns_asked_for_are_read(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=1)
    produce(servers, topic, [{"value": b"v", "key": b"k"}] * 3)
    assert_df_equality(
        _read(spark, servers, topic, columns="offset, topic").orderBy("offset"),
        spark.createDataFrame([(topic, 0), (topic, 1), (topic, 2)], "topic string, offset bigint"),
    )
