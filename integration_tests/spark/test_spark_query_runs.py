"""What a Python worker of Spark knows and keeps: the run of a streaming query, as Spark tells it to
the tasks of the sink (R-SPARK2), and modules.
"""

import gc
import uuid

import pyarrow as pa

from connector.data_source import HeadraceDataSource
from connector.source.batch_reader import HeadraceBatchReader
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import QUERY_TIMEOUT_S, consume, per_batch, produce
from storage_engine.tests.sampling import ALL_FAULTS

RUNS = 2 if ALL_FAULTS else 1
"""Of each query."""

GROUPS = 2 if ALL_FAULTS else 1
"""Of jobs, that foreachBatch sets."""

ROWS = 10
PER_BATCH = 5 if ALL_FAULTS else ROWS
"""Rows of a run, and of its micro-batches."""


class FrozenObjects(HeadraceDataSource):
    """Tells in the column `offset` how many objects the Python worker of a task has frozen."""

    @classmethod
    def name(cls):
        return "headrace_frozen_objects"

    def reader(self, schema):
        return FrozenObjectsReader(self._source_options)


class FrozenObjectsReader(HeadraceBatchReader):
    def read(self, partition):
        assert sum(batch.num_rows for batch in super().read(partition)) == 1
        yield pa.record_batch({"offset": pa.array([gc.get_freeze_count()], pa.int64())})


def write_job(frame, servers, **options):
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def test_tasks_know_the_run_of_their_query_whatever_job_groups_foreach_batch_sets(
    spark, spark_cluster, servers, topic, tmp_path
):
    """Spark itself says which run it is; groups of the user's may be UUIDs, and stay set."""
    for each in (f"{topic}-source", f"{topic}-0", f"{topic}-1"):
        create_topic(spark_cluster, each, partitions=1)
    groups = [str(uuid.uuid4()) for _ in range(GROUPS)]

    def with_run(rows):
        from connector.options.sink_options import parse_sink_options
        from connector.sink.micro_batch import streaming_micro_batch

        options = parse_sink_options({"bootstrap.servers": "h:1"})
        for piece in rows:
            run = str(streaming_micro_batch(options).run)
            yield pa.record_batch({"value": [run] * piece.num_rows})

    def write(frame, number):
        named = {"sinkId": topic, "batchId": str(number)}
        told = frame.mapInArrow(with_run, "value string")
        write_job(told, servers, topic=f"{topic}-0", **named)
        for group in groups:
            spark.sparkContext.setJobGroup(group, "a table")
            part = {"sinkPart": group}
            write_job(
                frame.mapInArrow(with_run, "value string"),
                servers,
                topic=f"{topic}-1",
                **named,
                **part,
            )

    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.options(subscribe=f"{topic}-source", startingOffsets="earliest")
    rows = reader.options(**per_batch(PER_BATCH)).load().select("value")
    runs = []
    for _ in range(RUNS):
        produce(servers, f"{topic}-source", [{"value": b"row"}] * ROWS)
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "each")).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        runs.append(query.runId)
        told = rows.mapInArrow(with_run, "value string").writeStream.format("headrace")
        told = told.option("kafka.bootstrap.servers", servers).option("topic", f"{topic}-0")
        told = told.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "sink"))
        query = told.start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        runs.append(query.runId)
    found = [(each.value() or b"").decode() for each in consume(servers, f"{topic}-0")]
    assert found == [run for run in runs for _ in range(ROWS)]
    in_groups = [(each.value() or b"").decode() for each in consume(servers, f"{topic}-1")]
    assert in_groups == ["None"] * RUNS * ROWS * GROUPS, "Spark says nothing of the run there"


def test_a_worker_that_has_read_before_does_not_visit_its_modules_after_each_task(
    spark, spark_cluster, servers, topic
):
    """PySpark collects garbage after each task, and modules are nearly all there is to visit."""
    create_topic(spark_cluster, topic, partitions=8)
    produce(servers, topic, [{"value": b"v", "partition": number} for number in range(8)])
    spark.dataSource.register(FrozenObjects)
    reader = spark.read.format(FrozenObjects.name()).option("kafka.bootstrap.servers", servers)
    reader = reader.options(subscribe=topic, columns="offset", minRecordsPerPartition=1)
    rows = reader.load().collect()
    assert len(rows) == 8
    assert max(row.offset for row in rows) > 20_000
