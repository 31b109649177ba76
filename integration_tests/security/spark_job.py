"""A job of Spark that writes, copies as a stream, and reads. It is a program of its own, so that
all that Spark says can be looked through.

    python spark_job.py '{"options": {…}, "wrong": {…}, "folder": …, "prefix": …}'
"""

import json
import sys
from pathlib import Path

from integration_tests.support.spark_support import QUERY_TIMEOUT_S, new_session

ROWS = 100


def main() -> None:
    given = json.loads(sys.argv[1])
    folder, prefix, options = Path(given["folder"]), given["prefix"], given["options"]
    events = folder / "events"
    events.mkdir()
    settings = (("spark.eventLog.enabled", "true"), ("spark.eventLog.dir", events.as_uri()))
    spark = new_session("secured", settings=settings)
    spark.sparkContext.setLogLevel("INFO")
    rows = spark.range(ROWS).selectExpr("cast(cast(id as string) as binary) as value")
    sink = rows.write.format("headrace").options(**options).option("topic", f"{prefix}-in")
    sink.mode("append").save()
    stream = (
        spark.readStream.format("headrace")
        .options(**options)
        .option("subscribe", f"{prefix}-in")
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", f"{prefix}-lag")
        .load()
    )
    query = (
        stream.select("value")
        .writeStream.format("headrace")
        .options(**options)
        .option("topic", f"{prefix}-out")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    print("progress", query.lastProgress)
    print("query", query, query.status)
    read = (
        spark.read.format("headrace")
        .options(**options)
        .option("subscribe", f"{prefix}-out")
        .option("startingOffsets", "earliest")
        .load()
    )
    read.explain(True)
    print("read", read.select("value").distinct().count())
    wrong = spark.read.format("headrace").options(**given["wrong"])
    try:
        wrong.option("subscribe", f"{prefix}-out").load().count()
    except Exception as error:  # noqa: BLE001 - what it says is what is tested
        print("refused", error)
    spark.stop()


if __name__ == "__main__":
    main()
