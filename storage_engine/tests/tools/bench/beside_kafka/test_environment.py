"""The environment in which Spark reads from both."""

from benchmarks.beside_kafka.environment import ROOT, requirements
from benchmarks.beside_kafka.jars import SPARK_VERSION


def test_the_environment_has_our_dependencies_and_one_pyspark():
    wanted = requirements(ROOT / "setup.cfg")
    assert [each for each in wanted if "pyspark" in each] == [f"pyspark=={SPARK_VERSION}"]
    assert any(each.startswith("pyarrow") for each in wanted)
