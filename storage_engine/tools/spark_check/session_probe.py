"""Builds a session, asks it for the format, and runs a task. It is a program of its own, because it
may hang, or die with its JVM.

    python -P session_probe.py RESULT.json '{"master": …, "remote": …, "conf": {…}, "names": […]}'

RESULT.json is written after each step, with what is known by then. It imports nothing of Headrace,
so that the session is that of a job which does not either.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession


class Given(TypedDict):
    """The session to build, and the settings to report."""

    master: str | None
    remote: str | None
    conf: dict[str, str]
    names: list[str]


class Found(TypedDict, total=False):
    """The content of RESULT.json."""

    version: str
    seconds: float
    cores: int
    master: str | None
    given: list[str]
    settings: dict[str, str | None]
    format: str | None
    task: str | None
    executables: list[str]


def main() -> None:
    result = Path(sys.argv[1])
    given: Given = json.loads(sys.argv[2])
    found: Found = {}

    def note(**step: Unpack[Found]) -> None:
        found.update(step)
        written = result.with_suffix(".part")
        written.write_text(json.dumps(found))
        written.replace(result)

    began = time.monotonic()
    spark = session(given)
    note(version=spark.version, seconds=time.monotonic() - began)
    if given["remote"] is None:
        context = spark.sparkContext
        context.setLogLevel("OFF")
        note(cores=context.defaultParallelism, master=context.master)
    # The names alone: a value may be a secret.
    note(given=sorted(given_names(spark, given)))
    note(settings={name: spark.conf.get(name, None) for name in given["names"]})
    note(format=error_of(lambda: ask_for_format(spark)))
    note(task=error_of(lambda: note(executables=run_task(spark))))
    spark.stop()


def session(given: Given) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("headrace spark-check")
    if given["remote"] is not None:
        return builder.remote(given["remote"]).getOrCreate()
    if given["master"] is not None:
        builder = builder.master(given["master"])
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in (quiet | given["conf"]).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def given_names(spark: "SparkSession", given: Given) -> set[str]:
    """Return the names of the settings that the session was built with, as far as known."""
    names = set(given["conf"])
    if given["remote"] is None:
        names.update(name for name, _ in spark.sparkContext.getConf().getAll())
    return names


def error_of(step: Callable[[], None]) -> str | None:
    """Return the error of the step in its own words; None without one."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - it is reported, whatever it is
        return str(error) or type(error).__name__
    return None


def ask_for_format(spark: "SparkSession") -> None:
    """Load the format. No broker is asked for columns: the schema is given here."""
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9")
    reader = reader.option("subscribe", "any").schema("value binary")
    assert "value" in reader.load().columns


def run_task(spark: "SparkSession") -> list[str]:
    """Return the Python that a task runs in."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(in_task, "executable string").collect()
    return [row.executable for row in rows]


def in_task(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    for _ in batches:
        pass
    column = pyarrow.array([sys.executable], pyarrow.string())
    yield pyarrow.RecordBatch.from_arrays([column], names=["executable"])


if __name__ == "__main__":
    main()
