"""Registers the format with a session where Spark can't find it by itself.

When a session first asks for a Python format, Spark looks for modules named `pyspark_*` on the
Python path. It does not look into archives that came with `--py-files`. Source: R-SPARK5.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("headrace")` work. It is harmless where that worked before. ConnectorError on a
    Spark that is too old."""
    from connector.spark_version import check_spark_version

    check_spark_version()
    from connector.data_source import HeadraceDataSource

    spark.dataSource.register(HeadraceDataSource)
