"""Streaming reads and writes through Spark: limits, restarts on a checkpoint, losses, a broker's
death.
"""

import gc
import tempfile
from pathlib import Path

import pytest
from chispa import assert_df_equality
from confluent_kafka.admin import NewPartitions
from pyspark.errors import AnalysisException, StreamingQueryException

from connector.data_source import HeadraceDataSource
from connector.sink.writers import HeadraceStreamWriter
from connector.source.lag import LagListener, lag_of
from connector.spark_version import limits_micro_batches
from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    partition_metadata,
    wait_until,
)
from integration_tests.support.spark_support import (
    QUERY_TIMEOUT_S,
    IdProducer,
    consume,
    first_offset,
    last_line,
    needs_limits,
    produce,
)
from storage_engine.tests.sampling import in_check

IDS_PER_SECOND = 1000
SHORT_RETENTION = {"segment.bytes": "20000", "retention.bytes": "30000"}


class WatchedSink(HeadraceDataSource):
    """Tells in a file how many objects the driver's Python worker has frozen at each commit."""

    @classmethod
    def name(cls):
        return "headrace_watched_sink"

    def streamWriter(self, schema, overwrite):
        return WatchedWriter(super().streamWriter(schema, overwrite)._options)


class WatchedWriter(HeadraceStreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        with _frozen_file(self._options.topic).open("a") as file:
            file.write(f"{gc.get_freeze_count()}\n")


def _frozen_file(topic):
    return Path(tempfile.gettempdir()) / f"headrace-frozen-{topic}"


def _numbers(first, last, **fields):
    return [{"value": str(number).encode(), **fields} for number in range(first, last)]


def _stream(spark, servers, topic, **options):
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def _to_files(frame, folder, **trigger):
    writer = frame.selectExpr("cast(value as string) as value", "partition", "offset").writeStream
    return (
        writer.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def _run(frame, folder):
    """Reads all records and ends. Returns the progress of each micro-batch that had rows."""
    query = _to_files(frame, folder, availableNow=True)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        query.stop()
    return [each for each in query.recentProgress if each.numInputRows]


def _read_back(spark, folder):
    return spark.read.parquet(str(folder / "out"))


def _expected(spark, first, last):
    return spark.range(first, last).selectExpr("cast(id as string) as value")


@needs_limits
def test_available_now_reads_all_in_batches_of_the_limit_and_ends(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=2)
    produce(servers, topic, _numbers(0, 900, partition=0))
    produce(servers, topic, _numbers(900, 1000, partition=1))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    heard = []
    listener = LagListener(lambda progress, lag: heard.append((progress.batchId, lag)))
    spark.streams.addListener(listener)
    try:
        batches = _run(_stream(spark, servers, topic, **options), tmp_path)
        wait_until(lambda: heard and heard[-1][0] == batches[-1].batchId, "the listener hears all")
    finally:
        spark.streams.removeListener(listener)
    assert [each.numInputRows for each in batches] == [300, 300, 300, 100]
    assert [lag_of(each.sources[0].latestOffset) for each in batches] == [lag for _, lag in heard]
    lags = [(lag.minimum, lag.maximum, lag.average) for _, lag in heard]
    assert lags[0] == (69, 631, 350.0)
    assert lags[-1] == (0, 0, 0.0)
    # One of each, the rest in proportion to the backlog: 899 to 99.
    first_end = batches[0].sources[0].endOffset
    assert '"0": 269, "1": 31' in first_end
    assert_df_equality(
        _read_back(spark, tmp_path).select("value").orderBy("value"),
        _expected(spark, 0, 1000).orderBy("value"),
        ignore_nullable=True,
    )


def test_a_query_goes_on_from_its_checkpoint(spark, spark_cluster, servers, topic, tmp_path):
    create_topic(spark_cluster, topic, partitions=2)
    options = {"startingOffsets": "earliest"}
    for first in (0, 500, 1000):
        produce(servers, topic, _numbers(first, first + 500))
        _run(_stream(spark, servers, topic, **options), tmp_path)
    assert_df_equality(
        _read_back(spark, tmp_path).select("value").orderBy("value"),
        _expected(spark, 0, 1500).orderBy("value"),
        ignore_nullable=True,
    )


def test_latest_begins_with_what_comes_after_the_start(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=2)
    produce(servers, topic, _numbers(0, 10))
    query = _to_files(_stream(spark, servers, topic), tmp_path, processingTime="0 seconds")
    try:
        wait_until(lambda: query.lastProgress is not None, "the first micro-batch")
        produce(servers, topic, _numbers(10, 20))
        query.processAllAvailable()
        assert query.lastProgress.sources[0].latestOffset is not None
    finally:
        query.stop()
    assert_df_equality(
        _read_back(spark, tmp_path).select("value").orderBy("value"),
        _expected(spark, 10, 20).orderBy("value"),
        ignore_nullable=True,
    )


def test_new_topics_of_a_pattern_and_added_partitions_are_read(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=2)
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribePattern", f"{topic}.*").option("startingOffsets", "earliest")
    produce(servers, topic, _numbers(0, 10))
    _run(reader.load(), tmp_path)
    create_topic(spark_cluster, f"{topic}-new", partitions=2)
    produce(servers, f"{topic}-new", _numbers(10, 20))
    client = admin(spark_cluster)
    client.create_partitions([NewPartitions(topic, 4)], request_timeout=60)[topic].result(90)
    wait_until(lambda: partition_metadata(client, topic, 3) is not None, "four partitions")
    produce(servers, topic, _numbers(20, 30, partition=3))
    _run(reader.load(), tmp_path)
    assert_df_equality(
        _read_back(spark, tmp_path).select("value").orderBy("value"),
        _expected(spark, 0, 30).orderBy("value"),
        ignore_nullable=True,
    )


def _lose_the_first_segments(servers, topic):
    for _ in range(10):
        produce(servers, topic, [{"value": b"x" * 1000} for _ in range(10)])
    # Ten records are a segment, and three of them are what retention leaves in the end.
    wait_until(lambda: first_offset(servers, topic) == 72, "retention deletes all that it may")


def test_lost_records_stop_a_query_with_one_line_or_are_stepped_over(
    spark, spark_cluster, servers, topic, tmp_path
):
    create_topic(spark_cluster, topic, partitions=1, config=SHORT_RETENTION)
    produce(servers, topic, _numbers(0, 2))
    options = {"startingOffsets": "earliest"}
    _run(_stream(spark, servers, topic, **options), tmp_path)
    _lose_the_first_segments(servers, topic)
    with pytest.raises(StreamingQueryException) as raised:
        _run(_stream(spark, servers, topic, **options), tmp_path)
    line = last_line(raised.value)
    assert line.startswith(f"[DATA_LOSS] offset 2 of {topic}-0 is wanted, but the log begins at ")
    assert "set failOnDataLoss=false" in line
    first_left = first_offset(servers, topic)
    _run(_stream(spark, servers, topic, **options, failOnDataLoss="false"), tmp_path)
    offsets = _read_back(spark, tmp_path).selectExpr("max(offset)", "min(offset)").first()
    assert tuple(offsets) == (101, 0)
    assert _read_back(spark, tmp_path).where(f"offset >= {first_left}").count() == 102 - first_left


@in_check
def test_a_stream_is_written_to_another_topic(spark, spark_cluster, servers, topic, tmp_path):
    target = f"{topic}-target"
    create_topic(spark_cluster, topic, partitions=2)
    create_topic(spark_cluster, target, partitions=3)
    produce(servers, topic, _numbers(0, 2000, key=b"k"))
    query = (
        _stream(spark, servers, topic, startingOffsets="earliest")
        .selectExpr("key", "value")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert query.exception() is None
    messages = consume(servers, target)
    assert sorted(int(each.value() or b"") for each in messages) == list(range(2000))
    assert len({each.partition() for each in messages}) == 1


def test_a_stream_reads_and_writes_on_while_a_leader_is_killed(
    spark, spark_cluster, servers, topic, tmp_path
):
    target = f"{topic}-target"
    create_topic(spark_cluster, topic, partitions=2)
    create_topic(spark_cluster, target, partitions=3)
    limit = {"maxOffsetsPerTrigger": "2000"} if limits_micro_batches() else {}
    query = (
        _stream(spark, servers, topic, startingOffsets="earliest", **limit)
        .selectExpr("value")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with IdProducer(servers, topic, per_second=IDS_PER_SECOND) as producer:
        wait_until(lambda: query.lastProgress is not None, "the first micro-batch")
        spark_cluster.kill_broker(2)
        killed_at = producer.acknowledged
        wait_until(
            lambda: producer.acknowledged >= killed_at + IDS_PER_SECOND // 2, "producing goes on"
        )
        spark_cluster.start_broker(2)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    written = [int(each.value() or b"") for each in consume(servers, target)]
    assert sorted(written) == list(range(producer.acknowledged))


def test_a_topic_that_does_not_exist_is_told_before_a_query_starts(spark, servers):
    with pytest.raises(AnalysisException) as raised:
        _stream(spark, servers, "nowhere")
    assert last_line(raised.value).startswith("[UNKNOWN_TOPIC] no topic nowhere on 127.0.0.1:")


def test_ending_offsets_are_refused_in_a_stream(spark, spark_cluster, servers, topic, tmp_path):
    create_topic(spark_cluster, topic)
    with pytest.raises(Exception) as raised:
        _run(_stream(spark, servers, topic, endingOffsets="latest"), tmp_path)
    assert last_line(raised.value).startswith("[BAD_OPTION] 'endingOffsets'")


def test_the_worker_that_commits_does_not_visit_its_modules_after_each_micro_batch(
    spark, spark_cluster, servers, topic, tmp_path
):
    """PySpark collects garbage after each commit, while Spark writes its commit log."""
    create_topic(spark_cluster, topic)
    spark.dataSource.register(WatchedSink)
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=5, numPartitions=1)
    query = (
        source.load()
        .selectExpr("cast(value as string) as value")
        .writeStream.format(WatchedSink.name())
        .options(**{"kafka.bootstrap.servers": servers, "topic": topic})
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    file = _frozen_file(topic)
    try:
        wait_until(lambda: file.exists() and len(file.read_text().split()) >= 4, "four commits")
    finally:
        query.stop()
        frozen = [int(count) for count in file.read_text().split()]
        file.unlink()
    assert frozen[3] > 20_000
    assert len(consume(servers, topic)) >= 20
