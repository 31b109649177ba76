"""The limits of a micro-batch, as Spark passes them to a source from 4.2 on. For an older Spark,
which passes none, these are classes of the same names."""

from typing import TYPE_CHECKING

from connector.spark_version import limits_micro_batches

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

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
        """What a micro-batch may hold."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """All there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """No more than these rows."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        """No fewer than these rows."""

        min_rows: int
