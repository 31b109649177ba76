"""A Spark driver of its own, of whatever version its environment names:
`spark_version_driver.py SERVERS SOURCE TARGET DIR`.

Copies SOURCE from its latest offsets on to TARGET with the exactly-once sink, until a file
`DIR/enough` is there, and stops where files in DIR say so, see `faulty_sink`. It is not
deterministic: a row of a replay goes to another partition, with another value behind its id. Then
it reads and writes in batches, and writes down in `DIR/told` what it saw.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from integration_tests.spark.faulty_sink import FOLDER, FORMAT, FaultySource
from integration_tests.support.spark_support import NO_WORKER, new_session


def main() -> None:
    servers, source, target, directory = sys.argv[1:]
    folder = Path(directory)
    os.environ[FOLDER] = directory
    spark = new_session("headrace-version-driver", master="local[2,4]")
    spark.dataSource.register(FaultySource)
    _copy(spark, servers, source, target, folder)
    told = {
        "version": pyspark.__version__,
        "read": _read(spark, servers, source),
        "empty": _batch(spark, servers, f"{target}-batch").count(),
        "available_now": _available_now(spark, servers, source, folder / "available"),
        "limited": _limited(spark, servers, source, folder / "limited"),
    }
    _write_twice(spark, servers, f"{target}-batch")
    (folder / "told").write_text(json.dumps(told))


def _stream(spark: SparkSession, servers: str, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def _copy(spark: SparkSession, servers: str, source: str, target: str, folder: Path) -> None:
    rows = _stream(spark, servers, source, minPartitions=4).select(
        F.concat_ws(":", F.expr("cast(value as string)"), F.rand()).alias("value"),
        F.floor(F.rand() * 3).cast("int").alias("partition"),
    )
    writer = (
        rows.writeStream.format(FORMAT)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.start()
    while not (folder / "enough").exists():
        if not query.isActive and NO_WORKER in str(query.exception()):
            query = writer.start()
        assert query.isActive, query.exception()
        time.sleep(0.02)
    query.processAllAvailable()
    query.stop()


def _batch(spark: SparkSession, servers: str, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def _read(spark: SparkSession, servers: str, topic: str) -> list[int]:
    """By a filter, which Spark offers to the source where it can."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    options = {"startingOffsets": "earliest", "columns": "value,partition", "minPartitions": "4"}
    frame = _batch(spark, servers, topic, **options).where("partition < 2")
    assert {row.partition for row in frame.select("partition").distinct().collect()} == {0, 1}
    return sorted(int(row.value) for row in frame.collect())


def _available_now(spark: SparkSession, servers: str, topic: str, folder: Path) -> list[int]:
    """All there is, in however many micro-batches."""
    found: list[int] = []

    def note(batch: DataFrame, number: int) -> None:
        found.extend(int(row.value) for row in batch.select("value").collect())

    query = (
        _stream(spark, servers, topic, startingOffsets="earliest")
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(found)


def _limited(spark: SparkSession, servers: str, topic: str, folder: Path) -> str:
    """What Spark says to a limit of micro-batches."""
    rows = _stream(spark, servers, topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - the test judges it
        return str(error)
    return "ended"


def _write_twice(spark: SparkSession, servers: str, topic: str) -> None:
    for _ in range(2):
        rows = spark.range(100).selectExpr("cast(id as string) as value")
        writer = rows.write.format("headrace").mode("append")
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
        writer.option("sinkId", topic).option("batchId", 7).save()


if __name__ == "__main__":
    main()
