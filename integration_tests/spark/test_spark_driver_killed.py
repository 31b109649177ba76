"""A driver that is killed with SIGKILL in its first micro-batch, and restarted on its checkpoint,
reads every record, although Spark does not write the initial offset down.

By default the query that stalls runs in the session of the tests, and what a SIGKILL would leave is
a copy of its folders at that moment; it begins at `latest`, where a start that is forgotten loses
records. In full it has a driver of its own, which is killed, and begins elsewhere, too, as it does
without a JVM in `connector/tests/source/test_stream_reader.py`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from chispa import assert_df_equality

from integration_tests.spark.spark_driver import start
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import produce
from storage_engine.client import Admin
from storage_engine.tests.sampling import ALL_FAULTS, in_full

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 300


def _killed_driver(servers, topic, starting, folder, meanwhile: Callable[[], None]) -> Path:
    """In a process group of its own, with its JVM and its Python workers. `meanwhile` is called
    before the kill. What is left."""
    command = [sys.executable, "-m", "integration_tests.spark.spark_driver"]
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [*command, servers, topic, starting, str(folder)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: (folder / "stalled").exists() or driver.poll() is not None,
            "the driver reaches its first micro-batch",
            timeout_s=RUN_TIMEOUT_S,
        )
        assert driver.poll() is None, (folder / "log").read_text()
        meanwhile()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return Path(folder)


def _copied_query(spark, servers, topic, starting, folder, meanwhile: Callable[[], None]) -> Path:
    """The same in a session that goes on: what there is when the query stalls."""
    first, left = Path(folder, "first"), Path(folder, "left")
    first.mkdir()
    query = start(spark, servers, topic, starting, first, stalls=True)
    try:
        wait_until(
            lambda: (first / "stalled").exists() or not query.isActive,
            "the query reaches its first micro-batch",
            timeout_s=RUN_TIMEOUT_S,
        )
        assert query.isActive, query.exception()
        shutil.copytree(first, left)
        meanwhile()
    finally:
        (first / "ends").touch()
        query.stop()
    return left


def _numbers(first, last):
    return [{"value": str(number).encode()} for number in range(first, last)]


def _starting(word, topic):
    """The option, which names those partitions that the query has at first."""
    return json.dumps({topic: {"0": 0, "1": 0, "2": 0}}) if word == "named" else word


@pytest.mark.parametrize(
    ("starting", "first_read"),
    [
        pytest.param("earliest", 0, marks=in_full),
        ("latest", 100),
        pytest.param("named", 0, marks=in_full),
    ],
)
def test_a_driver_killed_in_its_first_micro_batch_loses_nothing(
    spark, spark_cluster, topic, tmp_path, starting, first_read
):
    """A partition is added meanwhile."""
    servers, starting = spark_cluster.bootstrap_servers, _starting(starting, topic)
    create_topic(spark_cluster, topic, partitions=3)
    produce(servers, topic, _numbers(0, 100))

    def meanwhile():
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_partitions({topic: 4})
        produce(servers, topic, _numbers(100, 300))

    strike = _killed_driver if ALL_FAULTS else partial(_copied_query, spark)
    left = strike(servers, topic, starting, tmp_path, meanwhile)
    assert not (left / "checkpoint" / "commits" / "0").exists()

    query = start(spark, servers, topic, starting, left, stalls=False)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    read = spark.read.parquet(str(left / "out")).select("value").orderBy("value")
    expected = spark.range(first_read, 300).selectExpr("cast(id as string) as value")
    assert_df_equality(read, expected.orderBy("value"), ignore_nullable=True)
