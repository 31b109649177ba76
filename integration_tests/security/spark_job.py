"""A job of Spark that writes, copies as a stream, and reads. As a program of its own it lets all
that Spark says be looked through; in a session that runs already, most of it.

    python spark_job.py '{"options": {…}, "wrong": {…}, "folder": …, "prefix": …}'
"""

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from integration_tests.support.spark_support import QUERY_TIMEOUT_S, new_session

ROWS = 100
PLAIN = ("spark.eventLog.compress", "false")
"""Else nobody would find a secret there."""


def main() -> None:
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    events = folder / "events"
    events.mkdir()
    settings = (("spark.eventLog.enabled", "true"), ("spark.eventLog.dir", events.as_uri()), PLAIN)
    spark = new_session("secured", settings=settings)
    spark.sparkContext.setLogLevel("INFO")
    work(spark, folder, given["prefix"], given["options"], given["wrong"])
    spark.stop()


@contextmanager
def overheard(spark: SparkSession, folder: Path) -> Iterator[None]:
    """What a session that runs already logs and tells its listeners meanwhile is written to files
    of `folder`: all but what its Python workers say."""
    events, jvm, context = folder / "events", cast("Any", spark._jvm), spark.sparkContext
    events.mkdir()
    java = context._jsc.sc()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        f"overheard-{uuid.uuid4().hex}",
        jvm.scala.Option.empty(),
        jvm.java.net.URI(events.as_uri()),
        java.conf().clone().set(*PLAIN),
        java.hadoopConfiguration(),
    )
    logs = jvm.org.apache.logging.log4j.core.LoggerContext.getContext(False)
    settings = logs.getConfiguration()
    appender = jvm.org.apache.logging.log4j.core.appender.FileAppender.newBuilder()
    appender = appender.withFileName(str(folder / "log")).setName("overheard")
    layout = jvm.org.apache.logging.log4j.core.layout.PatternLayout.newBuilder()
    layout = layout.withPattern("%p %c: %m%n%ex").withConfiguration(settings).build()
    appender = appender.setLayout(layout).setConfiguration(settings).build()
    appender.start()
    listener.start()
    java.addSparkListener(listener)
    settings.getRootLogger().addAppender(appender, None, None)
    context.setLogLevel("INFO")
    try:
        yield
        java.listenerBus().waitUntilEmpty()
    finally:
        context.setLogLevel("OFF")
        settings.getRootLogger().removeAppender("overheard")
        java.removeSparkListener(listener)
        listener.stop()
        appender.stop()


def work(
    spark: SparkSession,
    folder: Path,
    prefix: str,
    options: dict[str, str],
    refused: dict[str, str],
) -> None:
    """Writes, copies and reads, with the good options; and tries the others."""
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
    wrong = spark.read.format("headrace").options(**refused)
    try:
        wrong.option("subscribe", f"{prefix}-out").load().count()
    except Exception as error:  # noqa: BLE001 - what it says is what is tested
        print("refused", error)


if __name__ == "__main__":
    main()
