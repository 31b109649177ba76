"""A Spark driver of its own, for tests that kill it: `spark_driver.py SERVERS TOPIC STARTING DIR`.

Reads TOPIC and writes each micro-batch to `DIR/out/batch=<id>`, overwriting what an earlier attempt
at the same batch left. It stops within the first micro-batch, after it has made `DIR/stalled`,
until there is `DIR/ends`, which fails the micro-batch; the test's own Spark goes on with `start`.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.support.spark_support import new_session


def start(
    spark: SparkSession, servers: str, topic: str, starting: str, folder: Path, *, stalls: bool
) -> StreamingQuery:
    def write_batch(frame: DataFrame, batch_id: int) -> None:
        out = str(folder / "out" / f"batch={batch_id}")
        frame.selectExpr("cast(value as string) as value").write.mode("overwrite").parquet(out)
        if stalls:
            (folder / "stalled").touch()
            while not (folder / "ends").exists():
                time.sleep(0.05)
            raise RuntimeError("ended within its first micro-batch")

    stream = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .load()
    )
    writer = stream.writeStream.foreachBatch(write_batch)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start()


def main() -> None:
    servers, topic, starting, directory = sys.argv[1:]
    spark = new_session("headrace-driver")
    start(spark, servers, topic, starting, Path(directory), stalls=True).awaitTermination()


if __name__ == "__main__":
    main()
