"""A Spark driver of its own, for tests that kill it or what it works with:
`spark_sink_driver.py SERVERS SOURCE TARGET DIR MIN_PARTITIONS`.

Copies SOURCE to TARGET on the exactly-once sink, under the sink id TARGET, in micro-batches of
PER_BATCH records, and ends when all is there. It is not deterministic: a row of a replay goes to
another partition, with another value behind its id.

What goes wrong is said by the name of a file in DIR, and happens once:

    raise-<batch>          the task's first attempt fails when some of its rows are acknowledged
    kill-<batch>           its Python worker is killed with SIGKILL then
    before-commit-<batch>  all tasks have written: makes `reached`, and goes on when that is gone
    after-commit-<batch>   the same once the batch is committed, before Spark writes that down
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import WriterCommitMessage

from connector import record_writer
from connector.sink_batch import streaming_batch
from connector.source import HeadraceDataSource
from connector.stream_writer import HeadraceStreamWriter
from integration_tests.spark_support import new_session

FORMAT = "headrace-with-faults"
PER_BATCH = 2_000
ROWS_BEFORE_A_FAULT = 300
PIECE_ROWS = 100
FOLDER = "HEADRACE_TEST_FAULTS"
"""Where Spark's Python workers find the names; they inherit it from the driver."""


class FaultySource(HeadraceDataSource):
    """The sink with faults; Spark sends it to its workers by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> HeadraceStreamWriter:
        return FaultyWriter(super().streamWriter(schema, overwrite)._options)


class FaultyWriter(HeadraceStreamWriter):
    """Goes wrong as the files say."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = streaming_batch(self._options).batch
        record_writer.GATHER_ROWS = PIECE_ROWS
        return super().write(_with_faults(iterator, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _pause(f"before-commit-{batchId}")
        super().commit(messages, batchId)
        _pause(f"after-commit-{batchId}")


def _with_faults(iterator: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    for whole in iterator:
        for start in range(0, whole.num_rows, PIECE_ROWS):
            if rows >= ROWS_BEFORE_A_FAULT:
                if _taken(f"raise-{batch}"):
                    raise RuntimeError("a task that fails")
                if _taken(f"kill-{batch}"):
                    os.kill(os.getpid(), signal.SIGKILL)
            piece = whole.slice(start, PIECE_ROWS)
            rows += piece.num_rows
            yield piece


def _taken(name: str) -> bool:
    """Whether this is to go wrong, and has not yet."""
    try:
        (Path(os.environ[FOLDER]) / name).unlink()
    except FileNotFoundError:
        return False
    return True


def _pause(name: str) -> None:
    if _taken(name):
        reached = Path(os.environ[FOLDER]) / "reached"
        reached.touch()
        while reached.exists():
            time.sleep(0.02)


def main() -> None:
    servers, source, target, directory, min_partitions = sys.argv[1:]
    os.environ[FOLDER] = directory
    spark = new_session("headrace-sink-driver", master="local[2,4]")
    spark.dataSource.register(FaultySource)
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .option("minPartitions", min_partitions)
        .load()
        .select(
            F.concat_ws(":", F.expr("cast(value as string)"), F.rand()).alias("value"),
            F.floor(F.rand() * 3).cast("int").alias("partition"),
        )
    )
    query = (
        rows.writeStream.format(FORMAT)
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.request.timeout.ms", "5000")
        .option("topic", target)
        .option("sinkId", target)
        .option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
