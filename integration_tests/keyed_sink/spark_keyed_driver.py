"""A Spark driver of its own, for tests that kill it:
`spark_keyed_driver.py MASTER SERVERS TOPIC URL DIR`.

Copies TOPIC to the table TABLE of the database at URL in micro-batches of PER_BATCH records, and
ends when all is there; a Spark that limits no micro-batch makes one of all there is. The query is
not deterministic: every computation draws other numbers. What goes wrong is said by files in DIR,
as with `faulty_sink`:

    before-write-<batch>  nothing is with the database: makes `reached`, goes on when it is gone
    within-<batch>        the same when some rows are with the database
    all-rows-<batch>      the same when all are, before the commit
    after-commit-<batch>  the same when the database has committed, before Spark writes that down
    fail-<batch>          the task of the last partition fails when it has computed its rows
    kill-<batch>          its Python worker is killed with SIGKILL then
    slow-<batch>          its first attempt does not end
    database-<batch>      the database fails when it has some rows: a server ends the connection,
                          SQLite has no room
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connector import KeyedSink
from connector.database import keyed_table
from integration_tests.exactly_once.query_server import session
from integration_tests.spark.faulty_sink import FOLDER, pause, taken
from integration_tests.support.spark_support import NO_WORKER, per_batch

TABLE = "records"
PER_BATCH = 2_000
LAST = 1
RESTARTS = 6


class FaultyTable(keyed_table.KeyedTable):
    """Goes wrong within the transaction, as the files say."""

    batch = 0

    def write(
        self, query: str, batch: int, pieces: Iterable[pa.RecordBatch], *, part: str = ""
    ) -> bool:
        FaultyTable.batch = batch
        pause(f"before-write-{batch}")

        def told() -> Iterator[pa.RecordBatch]:
            yield from pieces
            pause(f"all-rows-{batch}")

        return super().write(query, batch, told(), part=part)

    def _upsert(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
        super()._upsert(connection, rows)
        pause(f"within-{self.batch}")
        if taken(f"database-{self.batch}"):
            self._break(connection)

    def _break(self, connection: sa.Connection) -> None:
        """Its next statement fails."""
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text("PRAGMA max_page_count = 1"))
            return
        if connection.dialect.name == "mysql":
            backend = connection.scalar(sa.text("SELECT connection_id()"))
            with self._engine.connect() as other:
                other.execute(sa.text("KILL :pid"), {"pid": backend})
            return
        backend = connection.scalar(sa.text("SELECT pg_backend_pid()"))
        with self._engine.connect() as other:
            end = sa.text("SELECT pg_terminate_backend(:pid, 10000)")
            assert other.scalar(end, {"pid": backend})


def write_to(sink: KeyedSink) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        # Where Python workers find it that were started before.
        folder = Path(os.environ[FOLDER])
        fails, dies, hangs = (folder / f"{what}-{batch}" for what in ("fail", "kill", "slow"))

        def fail(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from pieces
            context = TaskContext.get()
            if context is None or context.partitionId() != LAST:
                return
            if fails.exists():
                fails.unlink()
                raise RuntimeError("a task that fails")
            if dies.exists():
                dies.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            if hangs.exists():
                hangs.unlink()
                # Until Spark kills it, or dies.
                spark = os.getppid()
                while os.getppid() == spark:
                    time.sleep(0.05)

        told = frame.withColumn("batch", F.lit(batch))
        sink(told.mapInArrow(fail, told.schema), batch)
        pause(f"after-commit-{batch}")

    return write


def copy(
    spark: SparkSession,
    servers: str,
    topic: str,
    url: str,
    folder: Path,
    *,
    min_partitions: int = LAST + 1,
) -> None:
    """All there is; the checkpoint is in the folder. Begun again where Spark had no patience with a
    Python process."""
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**per_batch(PER_BATCH))
        .option("minPartitions", min_partitions)
        .load()
        .select(
            *("topic", "partition", "offset", "timestamp"),
            F.expr("cast(cast(value as string) as int)").alias("id"),
            F.rand().alias("drawn"),
        )
    )
    writer = (
        rows.writeStream.foreachBatch(write_to(KeyedSink(url, table=TABLE)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    for left in reversed(range(RESTARTS)):
        query = writer.start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as failure:
            if NO_WORKER not in str(failure) or not left:
                raise
        finally:
            query.stop()


def main() -> None:
    master, servers, topic, url, directory = sys.argv[1:]
    os.environ[FOLDER] = directory
    keyed_table.KeyedTable = FaultyTable  # type: ignore[misc]
    spark = session("headrace-keyed-driver", master, directory)
    copy(spark, servers, topic, url, Path(directory))


if __name__ == "__main__":
    main()
