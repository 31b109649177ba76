"""The jobs of the comparison of Avro, on the Spark of either side.

Rule: both sides give the same columns of the same records, and write in the same schema; ours by
the format headrace and the registry, theirs by Spark's Kafka connector, `from_avro` and `to_avro`,
with the framing cut off and put in front by expressions. Ours writes exactly once, its default;
theirs can't.
"""

import argparse
from typing import TYPE_CHECKING

from benchmarks.avro.rides import PARTITIONS, ride_schema
from benchmarks.beside_kafka.rows import OURS
from benchmarks.beside_kafka.spark_process import serve, timed
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.typed.in_memory import MADE, RowsFormat
from benchmarks.typed.spark_worker import digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BODY = "substring(value, 6, length(value) - 5)"
"""The record behind Confluent's framing."""


class _Worker:
    def __init__(self, args: argparse.Namespace, spark: "SparkSession") -> None:
        self._is_ours: bool = args.format == OURS
        self._format: str = args.format
        self._options = {"kafka.bootstrap.servers": args.servers}
        self._spark = spark
        self._held: DataFrame | None = None
        spark.dataSource.register(RowsFormat)

    def do(self, job: SparkJob) -> Answer:
        """Do a job, and return its time and rows with the sum of a read, or its digest."""
        if job["kind"] == "made":
            return digest(self._made(job["rows"]))
        if job["kind"] == "write":
            held = self._in_memory(job["rows"])
            return timed(job["rows"], lambda: self._write(held, job))
        frame = self._topic(job)
        return digest(frame) if job["kind"] == "digest" else _read(job["rows"], frame)

    def _topic(self, job: SparkJob) -> "DataFrame":
        """Return the columns that the job wants, of the rows of a topic."""
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        reader = self._spark.read.format(self._format).options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        if self._is_ours:
            reader = reader.options(**_avro(job)).option("columns", ",".join(job["columns"]))
            return reader.load()
        ride = from_avro(F.expr(_BODY), ride_schema().text, {"mode": "FAILFAST"})
        rides = reader.load().select(ride.alias("ride"))
        return rides.select(*(f"ride.{name}" for name in job["columns"]))

    def _write(self, frame: "DataFrame", job: SparkJob) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import to_avro

        writer = frame.write
        if not self._is_ours:
            framing = F.lit(bytearray(bytes(1) + job["schema_id"].to_bytes(4, "big")))
            body = to_avro(F.struct("*"), ride_schema().text)
            writer = frame.select(F.concat(framing, body).alias("value")).write
        writer = writer.format(self._format).options(**self._options)
        if self._is_ours:
            writer = writer.options(**_avro(job))
        writer.option("topic", job["topic"]).mode("append").save()

    def _in_memory(self, rows: int) -> "DataFrame":
        """Return rows that Spark holds in memory, so that making them costs nothing in the job."""
        if self._held is None:
            self._held = self._made(rows).persist()
            self._held.count()
        return self._held

    def _made(self, rows: int) -> "DataFrame":
        return self._spark.read.format(MADE).options(rows=rows, tasks=PARTITIONS).load()


def _avro(job: SparkJob) -> dict[str, str]:
    return {"value.format": "avro", "schema.registry.url": job["registry"]}


def _read(rows: int, frame: "DataFrame") -> Answer:
    """Return the time of a job that reads all columns of the frame, and what it has found: the rows
    and the sum of `rides.checksum`."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    found = Observation()
    cents = F.round(F.col("fare") * 100).cast("long")
    observed = frame.observe(
        found, F.count(F.lit(1)).alias("rows"), F.sum(F.col("id") + cents).alias("digest")
    )
    answer = timed(rows, observed.write.format("noop").mode("overwrite").save)
    return {**answer, "rows": found.get["rows"], "digest": found.get["digest"]}


if __name__ == "__main__":
    serve("avro", lambda args, spark: _Worker(args, spark).do)
