"""The batch sink.

Exactly once: a job's rows are committed as a whole when all its tasks have written, and those of a
task that ran twice count once; with `sinkId` and `batchId` also those of a job that ran twice. Or
at least once: a task that Spark runs again writes its rows again, and a job that fails leaves what
it has written. Source: R-SPARK2; FACTS.md, the writer contract.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from connector.errors import without_traceback
from connector.options.sink_options import SinkOptions
from connector.sink.micro_batch import batch_write_id, with_streaming_query

if TYPE_CHECKING:
    import pyarrow as pa


class HeadraceBatchWriter(DataSourceArrowWriter):
    """Each task writes its rows and waits for their acknowledgement."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        # Spark pickles one writer into the tasks and into the commit: all have the same name.
        self._batch = batch_write_id(options)

    @without_traceback
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task; an empty DataFrame runs one task without rows."""
        if self._options.exactly_once:
            from connector.sink.task_attempt import write_in_transaction

            return write_in_transaction(self._options, with_streaming_query(self._batch), iterator)
        from connector.sink.record_writer import write_records

        return write_records(self._options, iterator)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Returns when the rows are committed for good. At least once there is nothing to do: rows
        were readable as soon as they were acknowledged."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import commit_micro_batch

            commit_micro_batch(self._options, messages)

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Gives up what was written. At least once what failed tasks wrote stays; a log takes
        nothing back."""
        if self._options.exactly_once:
            from connector.sink.micro_batch_commit import abort_members, close_micro_batch

            if self._options.batch_id is None:
                close_micro_batch(self._options, self._batch)
            else:
                # The batch may be running again already, under the same name.
                abort_members(self._options, messages)
