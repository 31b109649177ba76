"""A Spark driver of its own, for tests that kill it or what it works with:
`spark_sink_driver.py SERVERS SOURCE TARGET DIR MIN_PARTITIONS [keyed]`.

Copies SOURCE to TARGET on the exactly-once sink, under the sink id TARGET, in micro-batches of
PER_BATCH records, and ends when all is there. It is not deterministic: a row of a replay goes to
another partition, with another value behind its id. What goes wrong is said by files in DIR, see
`faulty_sink`. `keyed`: with `idempotentKey`.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import functions as F

from integration_tests.spark.faulty_sink import FOLDER, FORMAT, FaultySource
from integration_tests.support.spark_support import new_session

PER_BATCH = 2_000
ORIGIN = ("topic as from", "partition as part", "offset")


def main() -> None:
    servers, source, target, directory, min_partitions, *keyed = sys.argv[1:]
    os.environ[FOLDER] = directory
    spark = new_session("headrace-sink-driver", master="local[2,4]")
    spark.dataSource.register(FaultySource)
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .option("minPartitions", min_partitions)
        .load()
        .select(
            F.concat_ws(":", F.expr("cast(value as string)"), F.rand()).alias("value"),
            F.floor(F.rand() * 3).cast("int").alias("partition"),
            *(F.expr(each) for each in (ORIGIN if keyed else ())),
        )
    )
    key = {"idempotentKey": "from,part,offset"} if keyed else {}
    query = (
        rows.writeStream.format(FORMAT)
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.request.timeout.ms", "5000")
        .option("topic", target)
        .option("sinkId", target)
        .options(**key)
        .option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
