"""The jobs of the peer of `headrace lake`: Structured Streaming from Apache Kafka into Delta.

Rule: the table has the columns of ours, places included, so that both write the same values. Rows
of the typed kind are JSON, by `from_json`.
"""

import argparse
import tempfile
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.spark_process import serve, timed
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.typed.columns import ddl
from benchmarks.typed.in_memory import MADE, RowsFormat
from benchmarks.typed.spark_worker import TASKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACES = (
    "topic AS _topic",
    "partition AS _partition",
    "offset AS _offset",
    "timestamp AS _timestamp",
)


class _Worker:
    def __init__(self, args: argparse.Namespace, spark: "SparkSession") -> None:
        self._options = {"kafka.bootstrap.servers": args.servers}
        self._spark = spark
        spark.dataSource.register(RowsFormat)

    def do(self, job: SparkJob) -> Answer:
        """Do a job, and return its time and rows."""
        if job["kind"] == "fill":
            return timed(job["rows"], lambda: self._fill(job))
        return timed(job["rows"], lambda: self._write(job))

    def _fill(self, job: SparkJob) -> None:
        from pyspark.sql import functions as F

        made = self._spark.read.format(MADE).options(rows=job["rows"], tasks=TASKS).load()
        rows = made.select(F.to_json(F.struct("*")).alias("value"))
        writer = rows.write.format("kafka").options(**self._options)
        writer.option("topic", job["topic"]).mode("append").save()

    def _write(self, job: SparkJob) -> None:
        """Write a whole topic, of JSON for the kind `typed`, into the table at `out`."""
        place = job["out"]
        assert place is not None
        reader = self._spark.readStream.format("kafka").options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        reader = reader.options(includeHeaders="true", maxOffsetsPerTrigger=job["rows_per_batch"])
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                _columns(reader.load(), is_typed=job["kind"] == "typed")
                .writeStream.format("delta")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start(place)
            )
            query.awaitTermination()


def _columns(records: "DataFrame", *, is_typed: bool) -> "DataFrame":
    from pyspark.sql import functions as F

    if not is_typed:
        names = ("key", "value", "headers", "timestamp", "timestampType")
        return records.selectExpr(*names, *_PLACES)
    row = F.from_json(F.col("value").cast("string"), ddl()).alias("row")
    return records.select("*", row).selectExpr("row.*", *_PLACES)


if __name__ == "__main__":
    serve("delta", lambda args, spark: _Worker(args, spark).do)
