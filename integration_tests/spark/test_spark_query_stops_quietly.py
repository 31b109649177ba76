"""What is printed when a query with our sink ends: no trace of ours. Spark's own daemon prints a
BrokenPipeError for each task that it killed, whoever wrote the sink."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_versions import python_path
from storage_engine.tests.sampling import in_full

pytestmark = [
    in_full,
]


ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600

JOB = textwrap.dedent(
    """
    import sys, tempfile, time
    from pyspark.sql import SparkSession

    servers, topic = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    rate = spark.readStream.format("rate").option("rowsPerSecond", 2000).load()
    large = rate.selectExpr("explode(sequence(0, 2000))", "repeat(cast(value as string), 50) value")
    source = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    copied = source.option("subscribe", topic).load()

    def start(rows, topic):
        writer = rows.select("value").writeStream.format("headrace").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", servers)
        return writer.option("checkpointLocation", tempfile.mkdtemp()).start()

    for more in (0.3, 0.8):
        query = start(large, topic)
        while query.lastProgress is None:
            time.sleep(0.05)
        # In the middle of the next micro-batch.
        time.sleep(more)
        query.stop()
    idle = start(copied, f"{topic}-copy")
    idle.processAllAvailable()
    idle.stop()
    print("stopped")
    # The process ends with one query in a micro-batch and one that waits.
    start(copied, f"{topic}-copy").processAllAvailable()
    query = start(large, topic)
    while query.lastProgress is None:
        time.sleep(0.05)
    """
)


def test_a_query_that_stops_or_dies_with_its_process_prints_no_trace_of_ours(
    spark_cluster, servers, topic, tmp_path
):
    for name in (topic, f"{topic}-copy"):
        create_topic(spark_cluster, name, partitions=2)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path(ROOT)}
    done = subprocess.run(
        [sys.executable, job, servers, topic],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "stopped\n"
    assert "TaskKilled" in done.stderr, "no task was in the middle of its work"
    lines = done.stderr.splitlines()
    assert [line for line in lines if "connector/" in line or "storage_engine/" in line] == []
