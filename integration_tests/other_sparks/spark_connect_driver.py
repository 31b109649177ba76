"""A client of Spark Connect with a server of its own: `spark_connect_driver.py SERVERS TOPIC`.

Writes 100 records to TOPIC in a batch, copies them to `TOPIC-copy` as a stream, and to `TOPIC-each`
in foreachBatch, twice. Where Spark limits micro-batches it has several, and a listener hears their
lag. Prints a line of JSON: what it was, and the lag.
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
    told = {
        "version": spark.version,
        "session": type(spark).__module__,
        "read": read.count(),
        "lag": heard,
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
