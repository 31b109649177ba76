"""Several named writes in one `foreachBatch`: each has a place of its own, and two under one name
are an error. Source: R-SPARK2.

By default the query that ends between two writes runs in the session of the tests, and fails there,
which leaves what a SIGKILL leaves: nothing runs at that moment. In full it has a driver of its own,
which is killed. The writes that docs/spark.md shows are run by `test_spark_documents.py`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from integration_tests.spark.several_writes import PER_BATCH, WRITES, start, topics
from integration_tests.support.cluster_support import create_topic, wait_until
from integration_tests.support.spark_support import QUERY_TIMEOUT_S, consume, produce
from storage_engine.tests.sampling import ALL_FAULTS, in_full

ROOT = Path(__file__).parents[2]
RUN_TIMEOUT_S = 300
MOMENTS = range(1, len(WRITES) + 1) if ALL_FAULTS else [1]


def killed_after(writes: int, servers: str, topic: str, folder: Path) -> None:
    """A driver with its JVM and its Python workers gets SIGKILL after so many writes of its first
    micro-batch."""
    command = [sys.executable, "-m", "integration_tests.spark.several_writes"]
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [*command, servers, topic, str(folder), str(writes)],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: (folder / "waits").exists() or driver.poll() is not None,
            f"the driver has done {writes} writes",
            timeout_s=RUN_TIMEOUT_S,
        )
        assert driver.poll() is None, (folder / "log").read_text()[-4000:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def failed_after(spark, writes: int, servers: str, topic: str, folder: Path) -> None:
    """The same without a process of its own."""

    def written(number: int) -> None:
        if number + 1 == writes:
            raise RuntimeError("ended between two writes")

    query = start(spark, servers, topic, folder, written)
    with pytest.raises(StreamingQueryException, match="ended between two writes"):
        query.awaitTermination(QUERY_TIMEOUT_S)


def values(servers: str, topic: str) -> Counter[int]:
    return Counter(int(each.value() or b"") for each in consume(servers, topic))


@pytest.mark.parametrize("writes", MOMENTS)
def test_each_row_is_there_once_when_the_driver_is_killed_between_two_writes(
    spark, spark_cluster, servers, topic, tmp_path, writes
):
    """To two topics, to one topic, and by a column `topic`."""
    for each in (topic, *topics(topic)):
        create_topic(spark_cluster, each, partitions=2)
    rows = 2 * PER_BATCH
    produce(servers, topic, [{"value": b"%d" % number} for number in range(rows)])
    strike = killed_after if ALL_FAULTS else partial(failed_after, spark)
    strike(writes, servers, topic, tmp_path)
    assert values(servers, topics(topic)[0]), "its first write"

    query = start(spark, servers, topic, tmp_path)
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert query.exception() is None
    found = [values(servers, each) for each in topics(topic)]
    numbers = range(rows)
    assert found == [
        Counter(each for each in numbers if each % 2 == 0),
        Counter(each for each in numbers if each % 2 == 1),
        Counter(numbers),
        Counter(each for each in numbers if each % 3 == 0),
        Counter(each for each in numbers if each % 3),
    ]


@pytest.mark.parametrize("named_by", ["option", pytest.param("column", marks=in_full)])
def test_a_second_write_under_one_name_ends_the_query_before_its_rows(
    spark, spark_cluster, servers, topic, tmp_path, named_by
):
    """However often it is restarted; a failed write may be tried again under its name."""
    source = f"{topic}-source"
    for each in (topic, source):
        create_topic(spark_cluster, each, partitions=1)
    produce(servers, source, [{"value": b"%d" % number} for number in range(4)])
    places = {"topic": topic} if named_by == "option" else {}

    def write(frame, number, **more):
        if named_by == "column":
            frame = frame.selectExpr("*", f"'{topic}' as topic")
        named = {"sinkId": topic, "batchId": str(number)} | places | more
        writer = frame.write.format("headrace").mode("append").options(**named)
        writer.option("kafka.bootstrap.servers", servers).save()

    def write_twice(frame, number):
        rows = frame.select("value")
        spark.sparkContext.setJobDescription("what users set there hides nothing")
        with pytest.raises(Exception, match="a row that fails"):
            write(rows.selectExpr("cast(raise_error('a row that fails') as string) value"), number)
        write(rows.where("value < '2'"), number)
        write(rows.where("value >= '2'"), number)

    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    rows = reader.options(subscribe=source, startingOffsets="earliest").load()
    for _ in range(2):
        query = rows.writeStream.foreachBatch(write_twice).trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with contextlib.suppress(Exception):
            query.awaitTermination(QUERY_TIMEOUT_S)
        assert "give each write a sinkPart of its own" in str(query.exception())
        assert "[BATCH_ID_TAKEN] JoinBatch" in str(query.exception()), "before its first row"
        assert values(servers, topic) == Counter([0, 1])
