"""A Spark of one side, which reads jobs from stdin, a line of JSON each, does them, and answers
each with another line.

Rule: it runs in the environment with the PySpark of both sides, with the same settings for both; it
knows brokers by Spark's options only.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.told import Answer, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[SparkJob], Answer]
"""Does a job, and returns its answer."""

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


def serve(name: str, worker: "Callable[[argparse.Namespace, SparkSession], Work]") -> None:
    """Answer jobs until stdin ends. `worker` gets the arguments and a session."""
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
    work = worker(args, _session(name, args))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = work(json.loads(line))
        except Exception as error:  # noqa: BLE001 - reported to the caller, in one line
            answer = {"error": _first_line(str(error))}
        print(json.dumps(answer), file=answers, flush=True)


def timed(rows: int, work: Callable[[], None]) -> Answer:
    """Do a job that is one batch of `rows` rows, and return its answer."""
    started = time.perf_counter()
    work()
    time_ms = (time.perf_counter() - started) * 1000
    return {"batches": [{"rows": rows, "time_ms": time_ms}]}


def _session(name: str, args: argparse.Namespace) -> "SparkSession":
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Nothing is left in the temporary folder when this ends, which may be by force.
    files = f"-Djava.io.tmpdir={tempfile.gettempdir()} -XX:-UsePerfData"
    builder = SparkSession.builder.master(f"local[{args.cores}]").appName(name)
    for key, value in (*_SETTINGS.items(), ("spark.driver.extraJavaOptions", files)):
        builder = builder.config(key, value)
    for key, value in args.conf.items():
        builder = builder.config(key, value)
    if args.jars:
        builder = builder.config("spark.jars", args.jars)
    return builder.getOrCreate()


def _first_line(text: str) -> str:
    """Return the first line, with the last one if the first only announces an exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") else lines[0]
