"""What Spark shares among writes leaves nothing of one for the next: a writer that is used again,
two actions at once, a stage that runs again. Source: R-SPARK2."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from connector import in_session
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import consume
from storage_engine.tests.sampling import ALL_FAULTS

ROWS = 40
TASKS = 4
MOST_ATTEMPTS = 5


def values(servers: str, topic: str) -> Counter[int]:
    return Counter(int(each.value() or b"") for each in consume(servers, topic))


def test_a_writer_and_a_frame_write_as_often_as_they_are_used(spark, spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=2)
    frame = spark.range(ROWS).selectExpr("cast(id as string) value").cache()
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.save()
    writer.save()
    assert values(servers, topic) == Counter(dict.fromkeys(range(ROWS), 2))
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(in_session(spark, writer.save)) for _ in range(2)]:
            done.result()
    assert values(servers, topic) == Counter(dict.fromkeys(range(ROWS), 4))
    # A name counts for each use, too.
    named = writer.options(sinkId=topic, batchId="1")
    named.save()
    named.save()
    named.option("batchId", "2").save()
    assert values(servers, topic) == Counter(dict.fromkeys(range(ROWS), 6))


@pytest.mark.parametrize("is_named", [True, False] if ALL_FAULTS else [True])
def test_a_stage_that_runs_again_writes_each_row_once(
    spark, spark_cluster, servers, topic, tmp_path, is_named
):
    """A task of the write deletes what the stage before has left for its siblings."""
    create_topic(spark_cluster, topic, partitions=2)
    ran, deleted = tmp_path / "ran", tmp_path / "deleted"

    def counting(pieces):
        with ran.open("a") as seen:
            seen.write("x")
        yield from pieces

    def deleting(pieces):
        for piece in pieces:
            if not deleted.exists():
                deleted.touch()
                for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
                    for file in Path(folder).glob("*/shuffle_*"):
                        file.unlink(missing_ok=True)
            yield piece

    numbers = spark.range(0, ROWS, 1, TASKS).mapInArrow(counting, "id bigint")
    numbers = numbers.repartition(TASKS, F.col("id"))
    rows = numbers.mapInArrow(deleting, "id bigint").selectExpr("cast(id as string) value")
    named = {"sinkId": topic, "batchId": "1"} if is_named else {}
    writer = rows.write.format("headrace").mode("append").options(topic=topic, **named)
    writer.option("kafka.bootstrap.servers", servers)
    for attempt in range(MOST_ATTEMPTS):
        try:
            writer.save()
            break
        except Py4JJavaError as failure:
            assert attempt < MOST_ATTEMPTS - 1
            # A task of the stage's first attempt was committing when the stage ran again. Spark
            # refuses the commit of the second, and fails the job, for it is a local one.
            assert "Commit denied" in str(failure)
            ran.unlink()
            deleted.unlink()
    assert len(ran.read_text()) > TASKS, "the stage before ran again, and so did that of the write"
    assert values(servers, topic) == Counter(range(ROWS))
