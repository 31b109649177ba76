"""A Spark driver of its own, for tests that kill it: `spark_keyed_driver.py SERVERS TOPIC URL DIR`.

Copies TOPIC to the table TABLE of the database at URL in micro-batches of PER_BATCH records, and
ends when all is there. It is not deterministic: every computation draws other numbers. What goes
wrong is said by files in DIR, as with `faulty_sink`:

    fail-<batch>          the task of the last partition fails when it has computed its rows
    within-<batch>        some rows are with the database: makes `reached`, goes on when it is gone
    after-commit-<batch>  the same when the database has committed, before Spark writes that down
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connector import KeyedSink, keyed_tables
from integration_tests.faulty_sink import FOLDER, pause
from integration_tests.spark_support import new_session

TABLE = "records"
PER_BATCH = 2_000
LAST = 1


class FaultyTable(keyed_tables.KeyedTable):
    """Stops between two statements."""

    batch = 0

    def _upsert(self, connection: Any, rows: list[dict[str, Any]]) -> None:
        super()._upsert(connection, rows)
        pause(f"within-{self.batch}")


def write_to(sink: KeyedSink) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        # Where Python workers find it that were started before.
        fault = Path(os.environ[FOLDER]) / f"fail-{batch}"

        def fail(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from pieces
            context = TaskContext.get()
            if context is not None and context.partitionId() == LAST and fault.exists():
                fault.unlink()
                raise RuntimeError("a task that fails")

        FaultyTable.batch = batch
        sink(frame.mapInArrow(fail, frame.schema), batch)
        pause(f"after-commit-{batch}")

    return write


def copy(spark: SparkSession, servers: str, topic: str, url: str, folder: Path) -> None:
    """All there is; the checkpoint is in the folder."""
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .load()
        .select(
            *("topic", "partition", "offset", "timestamp"),
            F.expr("cast(cast(value as string) as int)").alias("id"),
            F.rand().alias("drawn"),
        )
    )
    query = (
        rows.writeStream.foreachBatch(write_to(KeyedSink(url, table=TABLE)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def main() -> None:
    servers, topic, url, directory = sys.argv[1:]
    os.environ[FOLDER] = directory
    keyed_tables.KeyedTable = FaultyTable  # type: ignore[misc]
    copy(new_session("headrace-keyed-driver"), servers, topic, url, Path(directory))


if __name__ == "__main__":
    main()
