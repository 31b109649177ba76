"""The streaming sink with moments at which a test can stop it. Without a file that asks for a stop
it is the sink that users have, except that each value names its micro-batch.

In the folder of the option `momentsFolder`:

stop-<moment>-<batch>  the first process that comes to this moment makes `reached`, with its process
                       id and the moment, and stands still until that is gone; then `then` says how
                       it goes on, if it is there: `raise`
zombie-<batch>         the first task attempt that begins leaves a copy of itself behind and is
                       killed; the copy has written some of its rows (`zombie-wrote`), goes on when
                       `zombie-goes-on` is there, and notes its end in `zombie-ended`
proxies                what a task connects to instead, as JSON: "host:port" -> port
commits                a line for each commit that succeeded: batch and seconds since 1970
"""

import contextlib
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import close_all
from connector.data_source import HeadraceDataSource
from connector.sink import record_writer
from connector.sink.micro_batch import streaming_micro_batch
from connector.sink.writers import HeadraceStreamWriter
from storage_engine.client.producer.produce import WORK_MS

FORMAT = "headrace-with-moments"
FOLDER_OPTION = "momentsFolder"
BROKEN_OPTION = "momentsBroken"
"""One of `broken_sinks` in the place of the users' sink."""

SOME_ROWS = 30
PIECE_ROWS = 10
"""Sent together at first; stateful queries have few rows in a task."""

REST_ROWS = 500
"""The same once SOME_ROWS are gone."""

POLL_S = 0.01


class MomentsSource(HeadraceDataSource):
    """The format with moments in its sink."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> HeadraceStreamWriter:
        folder = Path(self.options.pop(FOLDER_OPTION.lower()))
        broken = self.options.pop(BROKEN_OPTION.lower(), None)
        kind = MomentsWriter
        if broken is not None:
            from integration_tests.exactly_once.broken_sinks import BROKEN

            kind = BROKEN[broken]
        writer = super().streamWriter(schema, overwrite)
        return kind(writer._options, folder, writer._typed)


class MomentsWriter(HeadraceStreamWriter):
    """Stops at the moments that files name."""

    def __init__(self, options: Any, folder: Path, typed: Any = None) -> None:
        super().__init__(options, typed)
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = streaming_micro_batch(self._options).batch
        record_writer.GATHER_ROWS = PIECE_ROWS
        moment(self._folder, "before-write", batch)
        rows = _pieces(iterator, batch)
        if _taken(self._folder / f"zombie-{batch}"):
            _become_a_zombie(
                self._folder, lambda held: super(MomentsWriter, self).write(held), rows
            )
        with _through_proxies(self._folder):
            message = super().write(_with_moment(self._folder, batch, rows))
        moment(self._folder, "all-rows", batch)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        moment(self._folder, "before-commit", batchId)
        with _through_proxies(self._folder):
            super().commit(messages, batchId)
        with (self._folder / "commits").open("a") as commits:
            commits.write(f"{batchId} {time.time()}\n")
        moment(self._folder, "answered", batchId)


def moment(folder: Path, name: str, batch: int) -> None:
    """Stops here, if a file asks for it."""
    if not _taken(folder / f"stop-{name}-{batch}"):
        return
    reached = folder / "reached"
    complete = reached.with_suffix(".new")
    complete.write_text(f"{os.getpid()} {name}")
    complete.rename(reached)
    while reached.exists():
        time.sleep(POLL_S)
    if _taken(folder / "then"):
        raise RuntimeError("a task that fails")


def _with_moment(
    folder: Path, batch: int, pieces: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for piece in pieces:
        if rows >= SOME_ROWS:
            moment(folder, "some-rows", batch)
        else:
            # The writer sends what it has once in WORK_MS.
            time.sleep(2 * WORK_MS / 1000)
        rows += piece.num_rows
        yield piece


def _pieces(iterator: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
    """Small ones, with the micro-batch before each value."""
    for whole in iterator:
        place = whole.schema.get_field_index("value")
        values = pc.binary_join_element_wise(f"{batch}/", whole.column(place), "")
        told = whole.set_column(place, whole.schema.field(place), values)
        start = 0
        while start < told.num_rows:
            length = PIECE_ROWS if start <= SOME_ROWS else REST_ROWS
            yield told.slice(start, length)
            start += length


def _taken(name: Path) -> bool:
    """Whether a file asks for this, and no process has taken the file before."""
    try:
        name.unlink()
    except FileNotFoundError:
        return False
    return True


def _become_a_zombie(folder: Path, write: Any, rows: Iterator[pa.RecordBatch]) -> None:
    """Spark sees this process die; a child of it, which has no tie to Spark, goes on with the
    task."""
    held = list(rows)
    wrote, goes_on, ended = (
        folder / name for name in ("zombie-wrote", "zombie-goes-on", "zombie-ended")
    )
    if os.fork():
        while not wrote.exists():
            time.sleep(POLL_S)
        os.kill(os.getpid(), signal.SIGKILL)
    outcome = "nothing"
    try:
        _cut_ties()

        def paced() -> Iterator[pa.RecordBatch]:
            half = len(held) // 2
            yield from held[:half]
            wrote.write_text(str(os.getpid()))
            while not goes_on.exists():
                time.sleep(POLL_S)
            yield from held[half:]

        outcome = "drained" if write(paced()).drained else "wrote all"
    except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
        outcome = str(error)
    finally:
        complete = ended.with_suffix(".new")
        complete.write_text(outcome)
        complete.rename(ended)
        os._exit(0)


def _cut_ties() -> None:
    """No socket and no pipe of the parent is open here, so that the parent's death is noticed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with contextlib.suppress(OSError):
            mode = os.fstat(int(name)).st_mode
            if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                os.dup2(nothing, int(name))


@contextlib.contextmanager
def _through_proxies(folder: Path) -> Iterator[None]:
    """Connections made by this task, or by this commit, lead through the test's proxies."""
    try:
        proxies = json.loads((folder / "proxies").read_text())
    except FileNotFoundError:
        yield
        return
    connect = socket.create_connection

    def connect_to_proxy(address: tuple[str, int], **how: Any) -> socket.socket:
        host, port = address
        return connect((host, proxies.get(f"{host}:{port}", port)), **how)

    close_all()
    try:
        with patch.object(socket, "create_connection", connect_to_proxy):
            yield
    finally:
        close_all()
