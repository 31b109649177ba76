"""Delta Lake for Spark, and Spark's Kafka connector of the same Spark.

delta-spark is made for one version of Spark, and calls parts of it that the next patch release may
change: 4.3.1 runs on Spark 4.1.1, and is the newest that Maven Central has.
"""

from pathlib import Path

from benchmarks.beside_kafka.environment import ROOT, environment_with, requirements
from benchmarks.beside_kafka.jars import JarSet

DELTA_VERSION = "4.3.1"
DELTA_SPARK_VERSION = "4.1.1"

_HERE = Path(__file__).parent

DELTA = JarSet(
    name=f"Delta Lake {DELTA_VERSION}",
    folder=f"delta-spark-{DELTA_VERSION}",
    pinned=_HERE / "delta_jars.sha256",
    dependencies=(
        ("io.delta", "delta-spark_4.1_2.13", DELTA_VERSION),
        ("io.delta", "delta-storage", DELTA_VERSION),
        ("io.delta", "delta-kernel-api", DELTA_VERSION),
        ("io.delta", "delta-kernel-defaults", DELTA_VERSION),
        ("io.delta", "delta-kernel-unitycatalog", DELTA_VERSION),
    ),
    is_complete=True,
)
"""All else that it needs is among PySpark's jars."""
DELTA_CONNECTOR = JarSet(
    name=f"Spark's Kafka connector {DELTA_SPARK_VERSION}",
    folder=f"spark-kafka-{DELTA_SPARK_VERSION}",
    pinned=_HERE / "connector_jars.sha256",
    dependencies=(("org.apache.spark", "spark-sql-kafka-0-10_2.13", DELTA_SPARK_VERSION),),
    excluded=("org.apache.hadoop",),
)
DELTA_SETTINGS = {
    # For a table's log; by default 50, which cost a Spark with one core more than its work.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings of a session that reads and writes tables."""


def delta_environment(cache: Path) -> Path:
    """Return the path of a Python with that PySpark, made unless the cache has it already."""
    name = f"pyspark-{DELTA_SPARK_VERSION}"
    wanted = requirements(ROOT / "setup.cfg", DELTA_SPARK_VERSION)
    return environment_with(cache, name, wanted, "about 450 MB")
