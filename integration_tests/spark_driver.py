"""A Spark driver of its own, for tests that kill it: `spark_driver.py SERVERS TOPIC STARTING DIR`.

Its query stops within the first micro-batch, after it has made `DIR/stalled`.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from integration_tests.spark_support import QUERY_TIMEOUT_S, new_session


def copy(
    spark: SparkSession, servers: str, topic: str, starting: str, folder: Path, *, stalls: bool
) -> None:
    """Writes each micro-batch of the topic to `out/batch=<id>` in the folder, over what an earlier
    attempt at the same batch left, until all that is there now is written."""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        out = str(folder / "out" / f"batch={batch_id}")
        frame.selectExpr("cast(value as string) as value").write.mode("overwrite").parquet(out)
        if stalls:
            (folder / "stalled").touch()
            time.sleep(3600)

    stream = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .load()
    )
    writer = stream.writeStream.foreachBatch(write_batch)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer if stalls else writer.trigger(availableNow=True)).start()
    try:
        query.awaitTermination(None if stalls else QUERY_TIMEOUT_S)
        assert not query.isActive
    finally:
        query.stop()


def main() -> None:
    servers, topic, starting, folder = sys.argv[1:]
    copy(new_session("headrace-driver"), servers, topic, starting, Path(folder), stalls=True)


if __name__ == "__main__":
    main()
