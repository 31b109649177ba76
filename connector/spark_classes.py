"""Classes of Spark's Python API that an older Spark lacks, and what stands for them there.

The limits of a micro-batch are passed to a source from 4.2 on. A base class for streaming sinks
that take Arrow is there from 4.1 on; 4.0 passes Arrow to every writer of the class for batches.
"""

from typing import TYPE_CHECKING

from connector.spark_version import has_stream_arrow_writer, limits_micro_batches

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

if TYPE_CHECKING or has_stream_arrow_writer():
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceArrowWriter as DataSourceStreamArrowWriter

if TYPE_CHECKING or limits_micro_batches():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    from dataclasses import dataclass

    class SupportsTriggerAvailableNow:
        """An older Spark runs `Trigger.AvailableNow` as one micro-batch of all there is."""

    class ReadLimit:
        """A limit on the rows of a micro-batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """No more than these rows."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        """No fewer than these rows."""

        min_rows: int
