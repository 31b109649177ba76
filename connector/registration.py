"""Registers the format with a session where Spark can't find it by itself.

When a session first asks for a Python format, Spark looks for modules named `pyspark_*` on the
Python path. It does not look into archives that came with `--py-files`. It looks with the Python
that the JVM was started for, which may not be the one that the session runs. Source: R-SPARK5.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from connector.workers_python import is_chosen, is_default

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("headrace")` work. It is harmless where that worked before. ConnectorError on a
    Spark that is too old.

    On one machine (`local[…]`) the format is then planned and run by this process's Python, unless
    PYSPARK_PYTHON chooses another, or Spark 4.0 has found the format before.
    """
    from connector.spark_version import check_spark_version

    check_spark_version()
    from pyspark.errors import AnalysisException

    from connector.data_source import HeadraceDataSource

    with _this_python(spark), _own_archives(spark):
        try:
            spark.dataSource.register(HeadraceDataSource)
        except AnalysisException as error:
            # Spark 4.0 keeps a format that it has found by itself, and registers no other.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


@contextmanager
def _this_python(spark: "SparkSession") -> Iterator[None]:
    """Set this Python in the context: Spark stores the context's at the time with a format."""
    if (
        _is_remote(spark)
        or is_chosen()
        or is_default()
        or not (spark.sparkContext.master or "").startswith("local")
    ):
        yield
        return
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@contextmanager
def _own_archives(spark: "SparkSession") -> Iterator[None]:
    """Spark stores with a format the environment of its processes, too. Up to Spark 4.3 the process
    that plans a stream looks for the archives of `--py-files` in a folder that does not exist, so
    its PYTHONPATH names the driver's copies. In executors, where the archives lie elsewhere, that
    changes nothing: Spark passes them the right place."""
    if _is_remote(spark) or not spark.sparkContext._python_includes:
        yield
        return
    from pyspark import SparkFiles

    environment = spark.sparkContext.environment
    before = environment.get("PYTHONPATH")
    archives = [SparkFiles.get(name) for name in spark.sparkContext._python_includes]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*archives, before]))
    try:
        yield
    finally:
        if before is None:
            del environment["PYTHONPATH"]
        else:
            environment["PYTHONPATH"] = before


def _is_remote(spark: "SparkSession") -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")
