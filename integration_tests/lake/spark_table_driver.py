"""A Spark driver of its own, for tests that kill it: `SERVERS TOPIC TABLE DIR`.

Reads TOPIC from `earliest`, of table and log, and writes each micro-batch to `DIR/out/batch=<id>`,
overwriting what an earlier attempt at the same batch left. In the micro-batch STALLS_IN it makes
`DIR/stalled` when its rows are written, and waits to be killed.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.support.spark_support import new_session, per_batch

STALLS_IN = 2
PER_BATCH = 150


def start(
    spark: SparkSession, servers: str, topic: str, table: str, folder: Path, *, stalls: bool
) -> StreamingQuery:
    def write_batch(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))
        if stalls and batch_id == STALLS_IN:
            (folder / "stalled").touch()
            time.sleep(3600)

    stream = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .options(subscribe=topic, startingOffsets="earliest", table=table, **per_batch(PER_BATCH))
        .load()
    )
    writer = stream.writeStream.foreachBatch(write_batch)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    servers, topic, table, directory = sys.argv[1:]
    spark = new_session("headrace-table-driver")
    start(spark, servers, topic, table, Path(directory), stalls=True).awaitTermination()


if __name__ == "__main__":
    main()
