"""Spark Connect: batches and streams, read and written, of records and of columns. On an earlier
version of Spark, else with HEADRACE_FAULTS=full; a batch copy is in the test of the examples.
Source: R-SPARK5.
"""

import json
import subprocess
import sys

import pyspark
import pytest

from connector.spark_version import limits_micro_batches
from integration_tests.support import spark_versions
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import consume
from storage_engine.client import Admin, NewTopic
from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = [
    pytest.mark.skipif(
        not ALL_FAULTS and spark_versions.CHOSEN is None,
        reason="a Spark of its own: with HEADRACE_FAULTS=full",
    ),
]


TIMEOUT_S = 600


def test_streams_and_batches_over_spark_connect(spark_cluster, servers, topic):
    pytest.importorskip("grpc_status", reason="the extra 'connect' is not installed")
    for name in (topic, f"{topic}-copy", f"{topic}-each"):
        create_topic(spark_cluster, name, partitions=2)
    with Admin({"bootstrap.servers": servers}) as admin:
        for name, schema in (
            (f"{topic}-rows", "id BIGINT NOT NULL, name STRING, size DOUBLE"),
            (f"{topic}-rows-copy", "id BIGINT, name STRING"),
        ):
            new = NewTopic(name=name, partitions=2, replication_factor=1)
            admin.create_topics([new], schema=schema)
    driver = [
        sys.executable,
        "-m",
        "integration_tests.other_sparks.spark_connect_driver",
        servers,
        topic,
    ]
    environment = spark_versions.environment(spark_versions.CHOSEN)
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        driver,
        cwd=spark_versions.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["version"] == pyspark.__version__
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["read"] == 100
    assert told["rows"] == [[number, f"name {number}"] for number in (40, 41, 42)]
    if limits_micro_batches():
        assert told["lag"].count(0) == 2 and max(told["lag"]) > 0
    for name in ("copy", "each"):
        found = sorted(int(each.value() or b"") for each in consume(servers, f"{topic}-{name}"))
        assert found == list(range(100))
