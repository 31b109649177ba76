"""The batch sink.

Exactly once: the rows of a job are committed as a whole when all its tasks have written, and those
of a task that ran twice count once. With `sinkId` and `batchId` this holds for a job that ran
twice, too. At least once: a task that Spark runs again writes its rows again, and what a failed job
has written stays. Source: R-SPARK2.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from connector.errors import without_traceback
from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import batch_write_id, with_streaming_query
from connector.spark_workers import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.sink.typed.typed_sink import TypedSink


class HeadraceBatchWriter(DataSourceArrowWriter):
    """Each task writes its rows and waits until they are acknowledged."""

    def __init__(self, options: SinkOptions, typed: "TypedSink | None" = None) -> None:
        """`typed`: the topic's schema, and how rows fit it; None: rows are records."""
        self._options = options
        self._typed = typed
        # Spark pickles one writer into the tasks and into the commit, so all have the same id.
        self._batch = batch_write_id(options)

    @without_traceback
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task. For an empty DataFrame Spark runs one task without rows."""
        prepare_worker()
        if self._options.exactly_once:
            from connector.sink.task_attempt import write_in_transaction

            return write_in_transaction(
                self._options, with_streaming_query(self._batch), iterator, self._typed
            )
        from connector.sink.record_writer import write_records

        return write_records(self._options, iterator, self._typed)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Returns when the rows are committed for good. At least once there is nothing to do: rows
        were readable as soon as they were acknowledged."""
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
