"""The streaming sink. At least once: a micro-batch that Spark runs again is written again.

Spark makes two of these per micro-batch, in two processes: nothing on `self` survives from `write`
to `commit`. Source: FACTS.md, the writer contract.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from connector.errors import told_briefly
from connector.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    """Each task writes its rows and waits for their acknowledgement; there is nothing to commit."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @told_briefly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task; an empty micro-batch runs one task without rows."""
        from connector.record_writer import write_records

        return write_records(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The rows were readable as soon as they were acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What failed tasks wrote stays; the batch is written again when the query restarts."""
