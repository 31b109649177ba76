"""The streaming sink.

Exactly once: each task attempt writes in a transaction of its own, and `commit` names the attempts
that count. At least once: a micro-batch that Spark runs again is written again.

Spark makes two writers per micro-batch, in two processes, so nothing on `self` survives from
`write` to `commit`: what the driver knows of a task is the task's message. Source: R-SPARK2.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from connector.errors import without_traceback
from connector.options.sink_options import SinkOptions
from connector.spark_classes import DataSourceStreamArrowWriter
from connector.spark_workers import prepare_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.sink.typed.typed_sink import TypedSink


class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    """Each task writes its rows and waits until they are acknowledged."""

    def __init__(self, options: SinkOptions, typed: "TypedSink | None" = None) -> None:
        """`typed`: the topic's schema, and how rows fit it; None: rows are records."""
        self._options = options
        self._typed = typed

    @without_traceback
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task. For an empty micro-batch Spark runs one task without rows."""
        prepare_worker()
        if self._options.exactly_once:
            from connector.sink.micro_batch import streaming_micro_batch
            from connector.sink.task_attempt import write_in_transaction

            batch = streaming_micro_batch(self._options)
            return write_in_transaction(self._options, batch, iterator, self._typed)
        from connector.sink.record_writer import write_records

        return write_records(self._options, iterator, self._typed)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Returns when the micro-batch is committed for good. At least once there is nothing to do:
        rows were readable as soon as they were acknowledged."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import commit_micro_batch

            commit_micro_batch(self._options, messages, batchId)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts the transactions that `messages` name. At least once there are none: what failed
        tasks wrote stays, and the restarted query writes the micro-batch again."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import abort_members

            abort_members(self._options, messages)
