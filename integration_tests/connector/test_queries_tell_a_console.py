"""A console hears what a streaming query does and what its sink commits, and a console that hangs
costs the query nothing. Source: R-MET4."""

import contextlib

import pytest
from pyspark.sql import functions as F

from connector import QueryMetrics
from connector.tests.console_in_memory import console_in_memory
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import consume, produce

ROWS = 30


@contextlib.contextmanager
def _listening(spark, console):
    listener = QueryMetrics(console.url)
    spark.streams.addListener(listener)
    try:
        yield listener
    finally:
        spark.streams.removeListener(listener)
        listener.close()


def _query(spark, servers, topics, folder):
    source, target = topics
    rows = (
        spark.readStream.format("headrace")
        .option("bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        rows.select(F.col("value"))
        .writeStream.format("headrace")
        .option("bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(folder))
        .queryName(f"copies-{target}")
        .start()
    )


@pytest.fixture
def topics(spark_cluster, topic):
    for name in (topic, f"{topic}-copy"):
        create_topic(spark_cluster, name, partitions=2)
    _write(spark_cluster, topic)
    return topic, f"{topic}-copy"


def _write(cluster, topic):
    values = [{"value": b"v", "partition": number % 2} for number in range(ROWS)]
    produce(cluster.bootstrap_servers, topic, values)


def test_the_console_hears_of_progress_lag_and_commits(spark, spark_cluster, topics, tmp_path):
    servers = spark_cluster.bootstrap_servers
    with console_in_memory() as console, _listening(spark, console) as listener:
        query = _query(spark, servers, topics, tmp_path)
        identity = {"id": str(query.id), "run_id": str(query.runId), "name": query.name}
        query.processAllAvailable()
        query.stop()
        of_query = lambda: console.kinds(str(query.id))  # noqa: E731
        wait_until(lambda: "terminated" in of_query(), "the end is told")
        assert listener.dropped == 0
        events = [each for each in console.events if each["query"]["id"] == str(query.id)]
    assert of_query()[0] == "started"
    assert all(each["query"] == identity for each in events)
    with_rows = [
        each["progress"]
        for each in events
        if each["progress"] is not None and each["progress"]["numInputRows"]
    ]
    assert sum(progress["numInputRows"] for progress in with_rows) == ROWS
    assert {"addBatch", "walCommit"} <= with_rows[0]["durationMs"].keys()
    told = [each for each in events if each["kind"] == "progress"][-1]
    assert told["topics"] == [topics[0]]
    assert told["lag"] == 0
    assert told["sink"]["sink_id"] == str(query.id)
    assert told["app"]["id"] == spark.sparkContext.applicationId
    commits = [commit for each in events for commit in each["commits"]]
    assert [each["batch_id"] for each in commits] == list(range(len(commits)))
    assert sum(each["rows"] for each in commits) == ROWS
    assert {each["outcome"] for each in commits} == {"committed"}
    assert all(each["tasks"] >= 1 for each in commits)


def test_a_console_that_hangs_costs_the_query_nothing(spark, spark_cluster, topics, tmp_path):
    servers = spark_cluster.bootstrap_servers
    with console_in_memory() as console, _listening(spark, console):
        console.hangs.set()
        query = _query(spark, servers, topics, tmp_path)
        try:
            for _ in range(2):
                query.processAllAvailable()
                _write(spark_cluster, topics[0])
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
        assert console.posts == []
        # Else the listener waits for it when it is closed.
        console.hangs.clear()
        assert len(consume(servers, topics[1])) == 3 * ROWS
