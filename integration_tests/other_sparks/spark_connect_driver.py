"""A client of Spark Connect with a server of its own: `spark_connect_driver.py SERVERS TOPIC`.

Writes 100 records to TOPIC in a batch, copies them to `TOPIC-copy` as a stream, and to `TOPIC-each`
in foreachBatch, twice. Writes 100 rows to the typed topic `TOPIC-rows`, copies two of their columns
as a stream to the typed topic `TOPIC-rows-copy`, and reads some of these. Where Spark limits
micro-batches it has several, and a listener hears their lag. Prints a line of JSON: what it was,
the lag, and the rows.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from connector import LagListener, OffsetsBehindLatest
from connector.spark_version import limits_micro_batches
from integration_tests.support.spark_support import per_batch

PER_BATCH = 40
LISTENER_S = 60


def main() -> None:
    servers, topic = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    kafka = {"kafka.bootstrap.servers": servers}
    heard: list[int] = []

    def hear(_: object, lag: OffsetsBehindLatest) -> None:
        heard.append(lag.maximum)

    if limits_micro_batches():
        spark.streams.addListener(LagListener(hear))

    def each(frame: DataFrame, number: int) -> None:
        for _ in range(2):
            writer = frame.select("value").write.format("headrace").mode("append").options(**kafka)
            writer.options(topic=f"{topic}-each", sinkId=topic, batchId=number).save()

    numbers = spark.range(100).selectExpr("cast(id as string) as value")
    batch = numbers.write.format("headrace").mode("append")
    batch.options(**kafka, topic=topic).save()
    stream = spark.readStream.format("headrace").options(**kafka, subscribe=topic)
    stream = stream.options(startingOffsets="earliest", **per_batch(PER_BATCH))
    rows = stream.load().select("value")
    with tempfile.TemporaryDirectory() as folder:
        for name, writer in {
            "copy": rows.writeStream.format("headrace").options(**kafka, topic=f"{topic}-copy"),
            "each": rows.writeStream.foreachBatch(each),
        }.items():
            checkpoint = str(Path(folder) / name)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            query = writer.start()
            query.awaitTermination()
            assert query.exception() is None
        deadline = time.monotonic() + LISTENER_S
        while limits_micro_batches() and heard.count(0) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
    read = spark.read.format("headrace").options(**kafka, subscribe=f"{topic}-copy").load()
    told: dict[str, object] = {
        "version": spark.version,
        "session": type(spark).__module__,
        "read": read.count(),
        "lag": list(heard),
    }
    told["rows"] = copied_rows(spark, kafka, f"{topic}-rows")
    print(json.dumps(told))
    spark.stop()


def copied_rows(spark: SparkSession, kafka: dict[str, str], topic: str) -> list[list[object]]:
    """Some rows of the copy."""
    names = "concat('name ', id) as name"
    rows = spark.range(100).selectExpr("id", names, "cast(id as double) as size")
    rows.write.format("headrace").mode("append").options(**kafka, topic=topic).save()
    stream = spark.readStream.format("headrace").options(
        **kafka, subscribe=topic, startingOffsets="earliest", columns="id,name", where="id >= 40"
    )
    with tempfile.TemporaryDirectory() as folder:
        writer = stream.load().writeStream.format("headrace")
        writer = writer.options(**kafka, topic=f"{topic}-copy", checkpointLocation=folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.exception() is None
    copied = spark.read.format("headrace").options(**kafka, subscribe=f"{topic}-copy").load()
    return [list(row) for row in copied.where("id < 43").orderBy("id").collect()]


if __name__ == "__main__":
    main()
