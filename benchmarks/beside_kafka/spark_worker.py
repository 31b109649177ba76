"""The jobs of the comparison with Apache Kafka, on the Spark of either side.

Rule: both sides run the same queries: only the name of the format differs, and the jars of Spark's
Kafka connector. Ours writes exactly once, its default; theirs can't.
"""

import argparse
from typing import TYPE_CHECKING

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.spark_process import serve, timed
from benchmarks.beside_kafka.told import Answer, BatchTook, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WRITTEN_TASKS = 4


class _Worker:
    def __init__(self, args: argparse.Namespace, spark: "SparkSession") -> None:
        self._format: str = args.format
        self._options = {"kafka.bootstrap.servers": args.servers}
        self._spark = spark
        self._written: DataFrame | None = None

    def do(self, job: SparkJob) -> Answer:
        """Return the time and rows of each batch, or the rows that were counted."""
        if job["kind"] == "stream":
            return self._stream(job)
        if job["kind"] == "write":
            writer = self._in_memory(job["rows"]).write.format(self._format)
            writer = writer.options(**self._options).option("topic", job["out"])
            return timed(job["rows"], writer.mode("append").save)
        rows = self._spark.read.format(self._format).options(**self._options)
        frame = rows.options(subscribe=job["topic"], startingOffsets="earliest").load()
        if job["kind"] == "count":
            return {"rows": frame.count()}
        return timed(job["rows"], frame.write.format("noop").mode("overwrite").save)

    def _in_memory(self, rows: int) -> "DataFrame":
        """Return rows that Spark holds in memory, so that making them costs nothing in the job."""
        from pyspark.sql import functions as F

        if self._written is None:
            numbers = self._spark.range(0, rows, 1, WRITTEN_TASKS)
            value = F.lpad(F.col("id").cast("string"), 100, "x").cast("binary")
            self._written = numbers.select(value.alias("value")).persist()
            self._written.count()
        return self._written

    def _stream(self, job: SparkJob) -> Answer:
        reader = self._spark.readStream.format(self._format).options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        frame = reader.option("maxOffsetsPerTrigger", job["rows_per_batch"]).load()
        with scratch() as checkpoint:
            if job["out"] is None:
                writer = frame.writeStream.format("noop")
            else:
                writer = frame.select("value").writeStream.format(self._format)
                writer = writer.options(**self._options).option("topic", job["out"])
            # The default trigger: the next micro-batch begins when the last is done.
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            try:
                # The query is idle when it is stopped: no task is killed.
                return {"batches": _until_read(query, job["rows"])}
            finally:
                query.stop()


def _until_read(query: "StreamingQuery", rows: int) -> list[BatchTook]:
    """Return the micro-batches that read so many rows. Spark waits for them in its JVM: polling its
    progress would weigh on the measurement."""
    query.processAllAvailable()
    batches: list[BatchTook] = [
        {"rows": each["numInputRows"], "time_ms": each["durationMs"]["triggerExecution"]}
        for each in query.recentProgress
        if each["numInputRows"]
    ]
    found = sum(each["rows"] for each in batches)
    if found != rows:
        raise RuntimeError(f"a query read {found} of the {rows} rows of its topic")
    return batches


if __name__ == "__main__":
    serve("beside-kafka", lambda args, spark: _Worker(args, spark).do)
