"""A job of Spark with its own Kafka connector, a program of its own: it runs on that version of
Spark which the connector is for.

    python spark_connector_job.py '{"jars": […], "options": {…}, "wrong": {…}, "folder": …}'

Prints a line of JSON: how many values came through, and what it says to the wrong options.
"""

import json
import sys
from pathlib import Path

from integration_tests.support.spark_support import QUERY_TIMEOUT_S, new_session

ROWS = 1_000
SOURCE, TARGET = "spark-in", "spark-out"


def main() -> None:
    given = json.loads(sys.argv[1])
    options = given["options"]
    spark = new_session("connector", settings=[("spark.jars", ",".join(given["jars"]))])
    rows = spark.range(ROWS).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("kafka").options(**options).option("topic", SOURCE).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.select("value")
        .writeStream.format("kafka")
        .options(**options)
        .option("topic", TARGET)
        .option("checkpointLocation", str(Path(given["folder"]) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    read = spark.read.format("kafka").option("subscribe", TARGET)
    values = read.options(**options).load().select("value")
    told: dict[str, object] = {"values": values.distinct().count()}
    try:
        read.options(**given["wrong"]).load().count()
    except Exception as error:  # noqa: BLE001 - what it says is what is tested
        told["refused"] = str(error)
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
