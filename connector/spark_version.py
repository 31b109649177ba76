"""Finds out which Spark this is, and what it lacks.

    4.0    no limits of micro-batches, no class for Arrow in a streaming sink
    4.1    no limits of micro-batches
    4.2    everything; so has 4.3

A missing feature is recognised by Spark's Python API, not by its version, because vendors' runtimes
take over parts of later versions. The number only says whether the API is one that was tested.
"""

import re
from importlib.util import find_spec

from connector.errors import ConnectorError
from connector.log_once import warn_once

OLDEST, NEWEST = (4, 0), (4, 3)
"""The versions that the tests of the promises run on, and those between."""


def check_spark_version() -> None:
    """ConnectorError on a Spark that can't run the format; a line in the log on a newer one than
    was tested."""
    import pyspark

    found = _major_and_minor(pyspark.__version__)
    if found < OLDEST or find_spec("pyspark.sql.datasource") is None:
        raise ConnectorError(
            "SPARK_TOO_OLD",
            f"this is PySpark {pyspark.__version__}, and the format headrace needs "
            f"{_text(OLDEST)} or newer (Databricks Runtime 17.3)",
        )
    if found > NEWEST:
        warn_once(
            [
                f"this is PySpark {pyspark.__version__}; the format headrace was tested with "
                f"{_text(OLDEST)} to {_text(NEWEST)}"
            ]
        )


def limits_micro_batches() -> bool:
    """Whether Spark passes a streaming source its position and limits, as it does from 4.2 on."""
    from pyspark.sql.datasource import DataSourceStreamReader

    return hasattr(DataSourceStreamReader, "getDefaultReadLimit")


def has_stream_arrow_writer() -> bool:
    """Whether Spark has a class of its own for streaming sinks that take Arrow: from 4.1 on."""
    from pyspark.sql import datasource

    return hasattr(datasource, "DataSourceStreamArrowWriter")


def _major_and_minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version such as `4.1.0` or `4.2.0.dev0`."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else OLDEST


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
