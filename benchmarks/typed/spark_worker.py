"""The jobs of the comparison of typed topics with JSON, on the Spark of either side.

Rule: both sides have the same rows and give the same columns; ours by the format headrace and a
typed topic, theirs by Spark's Kafka connector, `from_json` and `to_json`. Ours writes exactly once,
its default; theirs can't.
"""

import argparse
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.rows import OURS
from benchmarks.beside_kafka.spark_process import serve, timed
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.typed.columns import ALL, ddl
from benchmarks.typed.in_memory import IN_MEMORY, MADE, RowsFormat, TypedInMemoryFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 4
"""The number of tasks, as many as partitions."""


class _Worker:
    def __init__(self, args: argparse.Namespace, spark: "SparkSession") -> None:
        self._is_ours: bool = args.format == OURS
        self._format: str = args.format
        self._options = {"kafka.bootstrap.servers": args.servers}
        self._spark = spark
        self._held: DataFrame | None = None
        for each in (RowsFormat, TypedInMemoryFormat):
            spark.dataSource.register(each)

    def do(self, job: SparkJob) -> Answer:
        """Do a job, and return its time and rows, or its digest."""
        rows, kind = job["rows"], job["kind"]
        if kind == "fill":
            return timed(rows, lambda: self._write(self._made(rows), job["topic"]))
        if kind == "write":
            held = self._in_memory(rows)
            return timed(rows, lambda: self._write(held, job["topic"]))
        if kind == "hold":
            writer = self._in_memory(rows).write.format(IN_MEMORY).mode("append")
            return timed(rows, writer.save)
        if kind == "made":
            return digest(self._made(rows))
        frame = self._memory(job) if kind == "memory" else self._topic(job)
        if kind == "digest":
            return digest(frame)
        return timed(rows, frame.write.format("noop").mode("overwrite").save)

    def _topic(self, job: SparkJob) -> "DataFrame":
        """Return the columns that the job wants, of the rows of a topic."""
        from pyspark.sql import functions as F

        reader = self._spark.read.format(self._format).options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        if self._is_ours:
            reader = reader.option("columns", ",".join(job["columns"]))
            return (reader.option("where", job["where"]) if job["where"] else reader).load()
        text = F.col("value").cast("string")
        return (
            reader.load()
            .select(F.from_json(text, ddl(job["columns"])).alias("row"))
            .select("row.*")
        )

    def _memory(self, job: SparkJob) -> "DataFrame":
        reader = self._spark.read.format(IN_MEMORY).schema(ddl(job["columns"]))
        return reader.options(rows=job["rows"], tasks=TASKS).load()

    def _write(self, frame: "DataFrame", topic: str) -> None:
        from pyspark.sql import functions as F

        if not self._is_ours:
            frame = frame.select(F.to_json(F.struct("*")).alias("value"))
        writer = frame.write.format(self._format).options(**self._options)
        writer.option("topic", topic).mode("append").save()

    def _in_memory(self, rows: int) -> "DataFrame":
        """Return rows that Spark holds in memory, so that making them costs nothing in the job."""
        if self._held is None:
            self._held = self._made(rows).persist()
            self._held.count()
        return self._held

    def _made(self, rows: int) -> "DataFrame":
        return self._spark.read.format(MADE).options(rows=rows, tasks=TASKS).load()


def digest(frame: "DataFrame") -> Answer:
    """Return the number of rows, and a number that does not depend on their order."""
    from pyspark.sql import functions as F

    # The hash of a row, cut so that the sum of millions stays a long.
    hashed = F.xxhash64(*ALL) % 1_000_003
    row = frame.agg(F.count("*").alias("rows"), F.sum(hashed).alias("digest")).first()
    assert row is not None
    return {"rows": row["rows"], "digest": row["digest"]}


if __name__ == "__main__":
    serve("typed", lambda args, spark: _Worker(args, spark).do)
