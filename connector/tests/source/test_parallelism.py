"""How many tasks Spark runs at the same time, by the command line of the driver's JVM."""

import os

import pytest

from connector.source.parallelism import known_parallelism, parallelism_of, settings_of

JVM = ["/usr/bin/java", "-cp", "/jars/*", "-Xmx1g", "org.apache.spark.deploy.SparkSubmit"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--conf", "spark.master=local[2]", "pyspark-shell"], 2),
        (["--conf=spark.master=local[3,4]", "--conf", "spark.task.cpus=2"], 1),
        (["--conf", "spark.master=local[*]"], 8),
        (["--master", "local", "job.py"], 1),
        (["-c", "spark.master=local-cluster[2, 3, 1024]"], 6),
        (["--master", "spark://h:7077", "--total-executor-cores", "12"], 12),
        (["--master=yarn", "--num-executors", "5", "--executor-cores=4"], 20),
        (["-Dspark.master=k8s://h", "-Dspark.default.parallelism=48"], 48),
        # Without all that makes the number, nothing is known.
        (["--master", "yarn", "--num-executors", "5"], None),
        (["--master", "spark://h:7077", "--executor-cores", "4"], None),
        (["--conf", "spark.master=local[2"], None),
        (["--conf", "spark.master=local[2]", "--conf", "spark.task.cpus=3"], None),
        (["job.py"], None),
        (["--conf"], None),
    ],
)
def test_the_settings_that_the_session_was_started_with_tell(arguments, expected):
    assert parallelism_of(settings_of(JVM + arguments), cores=8) == expected


def test_executors_that_come_and_go_count_at_their_most():
    settings = {
        "spark.executor.instances": "2",
        "spark.executor.cores": "4",
        "spark.dynamicAllocation.enabled": "true",
    }
    assert parallelism_of(settings, cores=8) is None
    settings["spark.dynamicAllocation.maxExecutors"] = "10"
    assert parallelism_of(settings, cores=8) == 40


def test_a_file_of_properties_counts_where_the_command_line_is_silent(tmp_path):
    file = tmp_path / "spark.properties"
    file.write_text(
        "#Java properties built from Kubernetes config map\n"
        "spark.executor.instances=3\n"
        "spark.executor.cores   2\n"
        "spark.master = k8s://https://h\\:443\n"
        "other=1\n"
    )
    named = ["--properties-file", str(file)]
    assert parallelism_of(settings_of(JVM + named), cores=8) == 6
    given = [*named, "--conf", "spark.executor.instances=5"]
    assert parallelism_of(settings_of(JVM + given), cores=8) == 10
    missing = ["--properties-file", str(tmp_path / "none")]
    assert parallelism_of(settings_of(JVM + missing), cores=8) is None


def test_a_process_below_no_jvm_knows_nothing():
    assert os.getppid() > 0
    assert known_parallelism() is None
