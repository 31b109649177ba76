"""A Spark driver of its own, for tests that kill it: `spark_driver.py SERVERS TOPIC STARTING DIR
MODE`.

Reads TOPIC and writes each micro-batch to `DIR/out/batch=<id>`, overwriting what an earlier attempt
at the same batch left. MODE `stall` stops within the first micro-batch, after it has made
`DIR/stalled`; MODE `run` reads all there is and ends.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from integration_tests.support.spark_support import new_session


def main() -> None:
    servers, topic, starting, directory, mode = sys.argv[1:]
    folder = Path(directory)
    spark = new_session("headrace-driver")

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        out = str(folder / "out" / f"batch={batch_id}")
        frame.selectExpr("cast(value as string) as value").write.mode("overwrite").parquet(out)
        if mode == "stall":
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
    query = writer.start()
    if mode == "stall":
        query.awaitTermination()
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main()
