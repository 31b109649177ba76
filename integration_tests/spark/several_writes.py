"""A query that writes each micro-batch in several named writes, and the driver of its own that a
test kills: `several_writes.py SERVERS TOPIC DIR DIES_AFTER`, the number of writes after which it
waits for its end.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.support.spark_support import new_session, per_batch

PER_BATCH = 10
EVEN, ODD = "cast(value as int) % 2 = 0", "cast(value as int) % 2 = 1"

# The topic, or none where a column says it; the part, or none for the topic; which rows.
WRITES = (
    # Two topics.
    ("evens", None, EVEN),
    ("odds", None, ODD),
    # Two frames to one topic.
    ("both", "even", EVEN),
    ("both", "odd", ODD),
    # Two frames with a column `topic`, each for two topics.
    (None, "accepted", f"{EVEN} and cast(value as int) % 3 = 0"),
    (None, "rejected", f"not ({EVEN} and cast(value as int) % 3 = 0)"),
)


def topics(topic: str) -> list[str]:
    return [f"{topic}-{name}" for name in ("evens", "odds", "both", "thirds", "others")]


def start(
    spark: SparkSession,
    servers: str,
    topic: str,
    folder: Path,
    written: Callable[[int], None] = lambda number: None,
) -> StreamingQuery:
    """`written` is called after each write, with its number within the micro-batch."""

    def write_all(frame: DataFrame, number: int) -> None:
        rows = frame.selectExpr("cast(value as string) value")
        target = F.when(F.expr("cast(value as int) % 3 = 0"), f"{topic}-thirds")
        for at, (name, part, where) in enumerate(WRITES):
            of_write = rows.where(where)
            named = {"sinkId": topic, "batchId": str(number)}
            named |= {} if part is None else {"sinkPart": part}
            if name is None:
                of_write = of_write.withColumn("topic", target.otherwise(f"{topic}-others"))
            else:
                named["topic"] = f"{topic}-{name}"
            writer = of_write.write.format("headrace").mode("append").options(**named)
            writer.option("kafka.bootstrap.servers", servers).save()
            written(at)

    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.options(subscribe=topic, startingOffsets="earliest", **per_batch(PER_BATCH))
    writer = reader.load().writeStream.foreachBatch(write_all).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def main() -> None:
    servers, topic, directory, dies_after = sys.argv[1:]
    folder = Path(directory)

    def written(number: int) -> None:
        if number + 1 == int(dies_after):
            (folder / "waits").touch()
            time.sleep(3600)

    start(
        new_session("headrace-several-writes"), servers, topic, folder, written
    ).awaitTermination()


if __name__ == "__main__":
    main()
