"""Departure delay per airport and hour with the hour's weather, as a stream from topic to topic.

    spark-submit examples/flights/job.py --bootstrap-servers 127.0.0.1:9092 --checkpoint DIR

reads columns of `flights` and `weather`, and writes to `delays` one row for each hour of an
airport, as soon as the watermark says that the hour is complete. The three topics have schemas. A
line of JSON at the start and for every micro-batch goes to stdout. It runs until it is told to stop
(Ctrl-C, SIGTERM), or, with `--available-now`, until it has read what is there.
"""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import listener
from pyspark.sql.streaming.query import StreamingQuery

from connector import QueryMetrics

FLIGHT_COLUMNS = "origin,scheduled,hour,flight,dep_delay"
WEATHER_COLUMNS = "origin,observed,hour,temp,wind_speed,precip,visib"
"""The columns that the job reads: the brokers send no others."""

LATENESS = "14 days"
"""How far one airport's records may lag behind another's, in event time, and still be counted.

Three airports are three partitions, and a stream that works off a year's backlog reads the same
share of each. Their years are not equally full: at the same share they are up to 10.6 days apart.
"""


def delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """A result for every airport and hour, from the rows of both topics.

    Flights and weather reports go through one aggregation, so that an hour needs one or the other,
    but not both. It is complete when both topics are beyond it. A row that has only a time moves
    the watermark on and counts nowhere.
    """
    departures = flights.withColumnRenamed("scheduled", "at").withWatermark("at", LATENESS)
    reports = weather.withColumnRenamed("observed", "at").withWatermark("at", LATENESS)
    events = departures.unionByName(reports, allowMissingColumns=True)
    results = events.groupBy("origin", F.window("at", "1 hour")).agg(
        F.max("hour").alias("hour_of_day"),
        F.count("flight").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("delay_minutes"),
        F.avg("dep_delay").alias("mean_delay"),
        F.max("dep_delay").alias("max_delay"),
        *(F.max(name).alias(name) for name in ("temp", "wind_speed", "precip", "visib")),
    )
    airport, hour = F.col("origin").alias("airport"), F.col("window.start").alias("hour")
    return results.select(airport, hour, *results.columns[2:])


def start(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Starts the query, and returns it."""
    connecting = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    if arguments.client_config is not None:
        # Not as options by themselves: Spark shows options to all users.
        connecting["client.config.file"] = arguments.client_config

    def rows(topic: str, columns: str) -> DataFrame:
        return (
            spark.readStream.format("headrace")
            .options(**connecting)
            .option("subscribe", topic)
            .option("columns", columns)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", arguments.max_offsets_per_trigger)
            .load()
        )

    writer = (
        delays(rows("flights", FLIGHT_COLUMNS), rows("weather", WEATHER_COLUMNS))
        .writeStream.format("headrace")
        .queryName("delays")
        .outputMode("append")
        .options(**connecting)
        .option("topic", "delays")
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="1 second").start()


class ProgressLines(listener.StreamingQueryListener):
    """Prints the start and what each micro-batch did, one line of JSON each."""

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        print(json.dumps({"started": event.name}), flush=True)

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        progress = json.loads(event.progress.json)
        line = {
            "batch": progress["batchId"],
            "rows": progress["numInputRows"],
            "late": sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"]),
            "milliseconds": progress["durationMs"].get("triggerExecution", 0),
            "watermark": progress["eventTime"].get("watermark"),
            "read": [source["endOffset"] for source in progress["sources"]],
        }
        print(json.dumps(line), flush=True)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None: ...


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="job.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="checkpoint location")
    parser.add_argument(
        "--client-config", metavar="FILE", help="properties file of a client of a secured cluster"
    )
    parser.add_argument(
        "--console",
        metavar="URL",
        help="URL of a `headrace console` to show the query (its token: HEADRACE_CONSOLE_TOKEN)",
    )
    parser.add_argument("--max-offsets-per-trigger", type=int, default=100_000, metavar="N")
    parser.add_argument(
        "--available-now", action="store_true", help="stop at the end of the topics"
    )
    return parser.parse_args(arguments)


def main(arguments: argparse.Namespace) -> None:
    spark = (
        SparkSession.builder.appName("flights")
        .config("spark.sql.session.timeZone", "UTC")
        # Three airports: Spark's default of 200 would be 200 tasks in every micro-batch.
        .config("spark.sql.shuffle.partitions", "2")
        # Saves a third of the fixed cost of a micro-batch with Python sources and sinks.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.streams.addListener(ProgressLines())
    if arguments.console is not None:
        spark.streams.addListener(QueryMetrics(arguments.console))
    query = start(spark, arguments)
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopped and not query.awaitTermination(1):
        pass
    # Under spark-submit, Ctrl-C has stopped the other side already.
    with contextlib.suppress(Py4JError):
        query.stop()
        spark.stop()


if __name__ == "__main__":
    main(parse_arguments(sys.argv[1:]))
