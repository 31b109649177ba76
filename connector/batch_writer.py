"""The batch sink. At least once: a task that Spark runs again writes its rows again, and a job that
fails leaves what it has written.

Source: FACTS.md, the writer contract.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from connector.errors import told_briefly
from connector.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


class HeadraceBatchWriter(DataSourceArrowWriter):
    """Each task writes its rows and waits for their acknowledgement; there is nothing to commit."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @told_briefly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task; an empty DataFrame runs one task without rows."""
        from connector.record_writer import write_records

        return write_records(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The rows were readable as soon as they were acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What failed tasks wrote stays; a log takes nothing back."""
