"""Spark reads a topic whose log has lost its beginning as if it had not: of table and log.
Source: docs/spark.md, Tables before logs."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chispa import assert_df_equality

from integration_tests.lake.lakes import TABLE, lakes, wait_for_rows
from integration_tests.lake.spark_table_driver import start
from integration_tests.lake.united_reads import cut_share
from integration_tests.lake.writers import TYPED, rows
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import QUERY_TIMEOUT_S, needs_limits
from storage_engine.client import Producer

ROOT = Path(__file__).parents[2]
COUNT = 600
RUN_TIMEOUT_S = 300


@pytest.fixture
def table(spark_cluster, tmp_path, topic):
    """The table of a typed topic of two partitions, which has all of its rows."""
    create_topic(spark_cluster, topic, partitions=2, config={**TABLE, **TYPED})
    with lakes(spark_cluster, tmp_path, topic) as (lake,):
        for first in range(0, COUNT, 200):
            with Producer({"bootstrap.servers": spark_cluster.bootstrap_servers}) as producer:
                producer.send_table(topic, rows(first, 200))
        wait_for_rows(lake.root / topic, COUNT, lake)
        yield str(lake.root / topic)


def batch(spark, servers, topic, **options):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.options(subscribe=topic, **options).load()


PLACE = "_partition,_offset"
QUERIES = (
    {"columns": f"id,name,fare,tip,at,_topic,{PLACE},_timestamp"},
    {"columns": f"name,{PLACE}", "where": "id >= 100 AND id < 400 AND name IS NOT NULL"},
)


def test_frames_are_equal_before_and_after_retention(spark, spark_cluster, servers, topic, table):
    before = [
        batch(spark, servers, topic, **each).orderBy("_partition", "_offset").collect()
        for each in QUERIES
    ]
    cut_share(spark_cluster, topic, 2, 0.6)
    for query, expected in zip(QUERIES, before, strict=True):
        found = batch(spark, servers, topic, table=table, **query)
        made = spark.createDataFrame(expected, schema=found.schema)
        assert_df_equality(found.orderBy("_partition", "_offset"), made, ignore_nullable=True)


@needs_limits
def test_a_driver_that_is_killed_between_table_and_log_goes_on_exactly(
    spark, spark_cluster, servers, topic, table, tmp_path
):
    cut_share(spark_cluster, topic, 2, 0.7)
    command = [sys.executable, "-m", "integration_tests.lake.spark_table_driver"]
    folder = tmp_path / "driver"
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [*command, servers, topic, table, str(folder)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: (folder / "stalled").exists() or driver.poll() is not None,
            "the driver is in the middle of its table",
            timeout_s=RUN_TIMEOUT_S,
        )
        assert driver.poll() is None, (folder / "log").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    cut_share(spark_cluster, topic, 2, 0.9)
    query = start(spark, servers, topic, table, folder, stalls=False)
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    read = spark.read.parquet(str(folder / "out"))
    assert read.select("batch").distinct().count() >= COUNT // 150
    made = spark.createDataFrame([(number,) for number in range(COUNT)], "id BIGINT")
    assert_df_equality(read.select("id").orderBy("id"), made.orderBy("id"), ignore_nullable=True)
