"""The jobs of the comparison of Avro, on the Spark of either side.

Rule: both sides have the same rows and give the same columns; ours by value.format=avro, theirs by
from_avro and to_avro, with the five bytes of framing cut off and put in front by hand. Ours writes
exactly once, its default; theirs can't.
"""

import argparse
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.rows import OURS
from benchmarks.beside_kafka.spark_process import serve, timed
from benchmarks.beside_kafka.told import Answer, SparkJob
from benchmarks.typed.columns import SCHEMA
from benchmarks.typed.in_memory import MADE, RowsFormat
from benchmarks.typed.spark_worker import TASKS, digest
from connector.sink.avro.derived_schema import derived_schema
from connector.typed_columns import column_type_of
from storage_engine.core.typed.column_types import StructColumn, StructColumnField

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FRAMING = b"\0\0\0\0\1"


class _Worker:
    def __init__(self, args: argparse.Namespace, spark: "SparkSession") -> None:
        self._is_ours: bool = args.format == OURS
        self._format: str = args.format
        self._options = {"kafka.bootstrap.servers": args.servers}
        if self._is_ours:
            url: str = args.conf["spark.headrace.bench.registry"]
            self._options |= {"value.format": "avro", "schema.registry.url": url}
        self._schema = _schema_text()
        self._spark = spark
        self._held: DataFrame | None = None
        spark.dataSource.register(RowsFormat)

    def do(self, job: SparkJob) -> Answer:
        """Do a job, and return its time and rows, or its digest."""
        rows, kind = job["rows"], job["kind"]
        if kind == "fill":
            return timed(rows, lambda: self._write(self._made(rows), job["topic"]))
        if kind == "write":
            held = self._in_memory(rows)
            return timed(rows, lambda: self._write(held, job["topic"]))
        if kind == "made":
            return digest(self._made(rows))
        frame = self._topic(job)
        if kind == "digest":
            return digest(frame)
        return timed(rows, frame.write.format("noop").mode("overwrite").save)

    def _topic(self, job: SparkJob) -> "DataFrame":
        """Return the columns that the job wants, of the rows of a topic."""
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        reader = self._spark.read.format(self._format).options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        if self._is_ours:
            return reader.option("columns", ",".join(job["columns"])).load()
        body = F.expr("substring(value, 6, length(value) - 5)")
        row = from_avro(body, self._schema).alias("row")
        return reader.load().select(row).select(*[f"row.{name}" for name in job["columns"]])

    def _write(self, frame: "DataFrame", topic: str) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import to_avro

        if not self._is_ours:
            body = to_avro(F.struct("*"), self._schema)
            frame = frame.select(F.concat(F.lit(_FRAMING), body).alias("value"))
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


def _schema_text() -> str:
    """Return the schema that our side registers: the same for both."""
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [
        StructColumnField(each.name, column_type_of(each.name, each.dataType))
        for each in from_arrow_schema(SCHEMA)
    ]
    return derived_schema(StructColumn(tuple(fields)), "value")


if __name__ == "__main__":
    serve("avro", lambda args, spark: _Worker(args, spark).do)
