"""A Spark of one side, which does the jobs that it reads from stdin, a line of JSON each, and
answers each with another line.

Runs in the environment with the PySpark of both sides; knows no broker but by Spark's options. Both
sides have the same settings and the same queries: only the name of the format differs, and the jars
of Spark's Kafka connector. Ours writes exactly once, its default; theirs has no such thing.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WRITTEN_TASKS = 4

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def main() -> None:
    """Answer jobs until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--cores", required=True)
    parser.add_argument("--jars", default="")
    parser.add_argument("--conf", type=json.loads, default={})
    args = parser.parse_args()
    # Answers alone go to stdout, whatever else writes there.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = _Worker(args)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = worker.do(json.loads(line))
        except Exception as error:  # noqa: BLE001 - told to who asked, in one line
            answer = {"error": _first_line(str(error))}
        print(json.dumps(answer), file=answers, flush=True)


class _Worker:
    def __init__(self, args: argparse.Namespace) -> None:
        self._format: str = args.format
        self._options = {"kafka.bootstrap.servers": args.servers}
        self._spark = _session(args)
        self._written: DataFrame | None = None

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """The time and rows of each batch."""
        if job["kind"] == "stream":
            return self._stream(job)
        if job["kind"] == "write":
            writer = self._in_memory(job["rows"]).write.format(self._format)
            writer = writer.options(**self._options).option("topic", job["out"])
            return _timed(job["rows"], writer.mode("append").save)
        rows = self._spark.read.format(self._format).options(**self._options)
        frame = rows.options(subscribe=job["topic"], startingOffsets="earliest").load()
        if job["kind"] == "count":
            return {"rows": frame.count()}
        return _timed(job["rows"], frame.write.format("noop").mode("overwrite").save)

    def _in_memory(self, rows: int) -> "DataFrame":
        """Rows that Spark has in its memory, so that making them weighs nothing."""
        from pyspark.sql import functions as F

        if self._written is None:
            numbers = self._spark.range(0, rows, 1, WRITTEN_TASKS)
            value = F.lpad(F.col("id").cast("string"), 100, "x").cast("binary")
            self._written = numbers.select(value.alias("value")).persist()
            self._written.count()
        return self._written

    def _stream(self, job: dict[str, Any]) -> dict[str, Any]:
        reader = self._spark.readStream.format(self._format).options(**self._options)
        reader = reader.options(subscribe=job["topic"], startingOffsets="earliest")
        frame = reader.option("maxOffsetsPerTrigger", job["rows_per_batch"]).load()
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as checkpoint:
            if job["out"] is None:
                writer = frame.writeStream.format("noop")
            else:
                writer = frame.select("value").writeStream.format(self._format)
                writer = writer.options(**self._options).option("topic", job["out"])
            # The default trigger: the next micro-batch begins when the last is done.
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                # The query is idle when it is stopped: no task is killed.
                return {"batches": _until_read(query, job["rows"])}
            finally:
                query.stop()


def _timed(rows: int, work: Callable[[], None]) -> dict[str, Any]:
    started = time.perf_counter()
    work()
    time_ms = (time.perf_counter() - started) * 1000
    return {"batches": [{"rows": rows, "time_ms": time_ms}]}


def _until_read(query: "StreamingQuery", rows: int) -> list[dict[str, float]]:
    """The micro-batches that read so many rows. Spark waits for them in its JVM: asking it for its
    progress time and again would weigh on what is measured."""
    query.processAllAvailable()
    batches = [
        {"rows": each["numInputRows"], "time_ms": each["durationMs"]["triggerExecution"]}
        for each in query.recentProgress
        if each["numInputRows"]
    ]
    found = sum(each["rows"] for each in batches)
    if found != rows:
        raise RuntimeError(f"a query read {found} of the {rows} rows of its topic")
    return batches


def _session(args: argparse.Namespace) -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Nothing is left in the temporary folder when this ends, which may be by force.
    files = f"-Djava.io.tmpdir={tempfile.gettempdir()} -XX:-UsePerfData"
    builder = SparkSession.builder.master(f"local[{args.cores}]").appName("beside-kafka")
    for name, value in (*_SETTINGS.items(), ("spark.driver.extraJavaOptions", files)):
        builder = builder.config(name, value)
    for name, value in args.conf.items():
        builder = builder.config(name, value)
    if args.jars:
        builder = builder.config("spark.jars", args.jars)
    return builder.getOrCreate()


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"


if __name__ == "__main__":
    main()
