"""Makes the format known to a session. Its one rule: needed only where Spark can't find it itself.

Spark looks for modules named `pyspark_*` in the Python path when a session first asks for a format
of Python's, and does not look into archives that came with `--py-files`. Source: R-SPARK5.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """After this `format("headrace")` works; harmless where it worked before."""
    from connector.data_source import HeadraceDataSource

    spark.dataSource.register(HeadraceDataSource)
