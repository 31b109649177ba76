"""The streaming sink, going wrong where a test says so, by the name of a file in a folder, once:

raise-<batch>          the task's first attempt fails when some of its rows are with the brokers
kill-<batch>           its Python worker is killed with SIGKILL then
before-commit-<batch>  all tasks have written: makes `reached`, with the process id of whoever
                           commits, and goes on when that is gone
after-commit-<batch>   the same once the batch is committed, before Spark writes that down
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connector.data_source import HeadraceDataSource
from connector.sink import record_writer
from connector.sink.micro_batch import streaming_micro_batch
from connector.sink.writers import HeadraceStreamWriter

FORMAT = "headrace-with-faults"
ROWS_BEFORE_A_FAULT = 300
PIECE_ROWS = 100
FOLDER = "HEADRACE_TEST_FAULTS"
"""Where Spark's Python workers find the names; they inherit it from the driver."""


class FaultySource(HeadraceDataSource):
    """The format with faults in its sink."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> HeadraceStreamWriter:
        return FaultyWriter(super().streamWriter(schema, overwrite)._options)


class FaultyWriter(HeadraceStreamWriter):
    """Fails where a file asks for it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = streaming_micro_batch(self._options).batch
        record_writer.GATHER_ROWS = PIECE_ROWS
        return super().write(_with_faults(iterator, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pause(f"before-commit-{batchId}")
        super().commit(messages, batchId)
        pause(f"after-commit-{batchId}")


def _with_faults(iterator: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    for whole in iterator:
        for start in range(0, whole.num_rows, PIECE_ROWS):
            if rows >= ROWS_BEFORE_A_FAULT:
                if taken(f"raise-{batch}"):
                    raise RuntimeError("a task that fails")
                if taken(f"kill-{batch}"):
                    os.kill(os.getpid(), signal.SIGKILL)
            piece = whole.slice(start, PIECE_ROWS)
            rows += piece.num_rows
            yield piece


def taken(name: str) -> bool:
    """Whether a file asks for this fault, and no process has taken the file before."""
    try:
        (Path(os.environ[FOLDER]) / name).unlink()
    except FileNotFoundError:
        return False
    return True


def pause(name: str) -> None:
    if taken(name):
        reached = Path(os.environ[FOLDER]) / "reached"
        named = reached.with_suffix(".new")
        named.write_text(str(os.getpid()))
        named.rename(reached)
        while reached.exists():
            time.sleep(0.02)
