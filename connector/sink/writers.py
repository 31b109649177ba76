"""The sinks of batch writes and of streaming queries: each task writes its rows and waits until all
are acknowledged.

Exactly once: each task attempt writes in a transaction of its own, and `commit` names the attempts
that count, so that the rows of a task that ran twice count once; with `sinkId` and `batchId` those
of a job that ran twice, too. At least once: what Spark runs again is written again, and what a
failed job has written stays.

Spark makes two writers per micro-batch, in two processes, so nothing on `self` survives from
`write` to `commit`: what the driver knows of a task is the task's message. For no rows at all Spark
runs one task without rows. Source: R-SPARK2.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from connector.errors import without_traceback
from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import (
    MicroBatchId,
    batch_write_id,
    streaming_micro_batch,
    with_streaming_query,
)
from connector.spark_classes import DataSourceStreamArrowWriter
from connector.spark_workers import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.sink.columns_sink import ColumnsSink


class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    """Serves `df.writeStream`."""

    def __init__(self, options: SinkOptions, typed: "ColumnsSink | None" = None) -> None:
        """`typed`: what the columns of rows are written as; None: rows are records."""
        self._options = options
        self._typed = typed

    @without_traceback
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        return _write(
            self._options, iterator, self._typed, lambda: streaming_micro_batch(self._options)
        )

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Returns when the micro-batch is committed for good. At least once there is nothing to do:
        rows were readable as soon as they were acknowledged."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import commit_micro_batch

            commit_micro_batch(self._options, messages, batchId)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts the transactions that `messages` name. At least once there are none: the restarted
        query writes the micro-batch again."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import abort_members

            abort_members(self._options, messages)


class HeadraceBatchWriter(DataSourceArrowWriter):
    """Serves `df.write`."""

    def __init__(self, options: SinkOptions, typed: "ColumnsSink | None" = None) -> None:
        """`typed` is as for a stream."""
        self._options = options
        self._typed = typed
        # Spark pickles one writer into the tasks and into the commit, so all have the same id.
        self._batch = batch_write_id(options)

    @without_traceback
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        return _write(
            self._options, iterator, self._typed, lambda: with_streaming_query(self._batch)
        )

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Returns when the rows are committed for good."""
        prepare_worker()
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import commit_micro_batch

            commit_micro_batch(self._options, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts what tasks have written. At least once it stays: a log takes nothing back."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import abort_members, close_micro_batch

            if self._options.batch_id is None:
                close_micro_batch(self._options, self._batch, messages)
            else:
                # A job of the same number may be running again already, under the same id.
                abort_members(self._options, messages)


def _write(
    options: SinkOptions,
    rows: "Iterator[pa.RecordBatch]",
    typed: "ColumnsSink | None",
    micro_batch: Callable[[], MicroBatchId],
) -> WriterCommitMessage:
    prepare_worker()
    if options.exactly_once:
        from connector.sink.task_attempt import write_in_transaction

        return write_in_transaction(options, micro_batch(), rows, typed)
    from connector.sink.record_writer import write_records

    return write_records(options, rows, typed)
