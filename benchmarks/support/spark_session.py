"""The common parts of the benchmarks of the Spark format: a cluster and a session of their own,
turns, and the times of micro-batches.

All sides of a comparison run in one session, each first in every other round.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, SupportsFloat, TypeVar

from benchmarks.arguments import add_numbers, scratch
from storage_engine.tools.arguments import add_json, natural_number
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CORES = 2
_WARM_UP_ROUNDS = 1
"""The first round starts processes and fills caches."""
_WARM_UP_TRIGGERS = 3
"""The first micro-batches of a query start processes."""

QUERY_TIMEOUT_S = 120

Say = Callable[[str], None]
Side = TypeVar("Side")
Figure = TypeVar("Figure", bound=SupportsFloat)


def add_spark_numbers(parser: argparse.ArgumentParser, *numbers: tuple[str, int, str]) -> None:
    """Add the numbers, those of the warm-up, which is not measured, and `--json`."""
    add_numbers(parser, *numbers)
    add_numbers(
        parser,
        ("--warm-up-rounds", _WARM_UP_ROUNDS, "rounds before those that are measured"),
        ("--warm-up-triggers", _WARM_UP_TRIGGERS, "micro-batches before those that are measured"),
        kind=natural_number,
    )
    add_json(parser)


def rounds(args: argparse.Namespace) -> Iterable[int]:
    """Return the numbers of all rounds; those below 1 warm up, and are not measured."""
    return range(1 - args.warm_up_rounds, args.rounds + 1)


def in_turn(sides: Mapping[str, Side], turn: int) -> Iterable[tuple[str, Side]]:
    """Return the sides, each first in every other round: a later one finds a warmer JVM."""
    return list(sides.items()) if turn % 2 else list(sides.items())[::-1]


@dataclass(frozen=True, slots=True)
class SparkBench:
    """The session, the cluster and the arguments of a benchmark."""

    spark: "SparkSession"
    servers: str
    args: argparse.Namespace
    say: Say

    def by_turns(
        self, what: str, unit: str, sides: Mapping[str, Callable[[], Sequence[Figure]]]
    ) -> dict[str, list[Figure]]:
        """Return the figures of all measured rounds, by side; each gives some in its turn."""
        found: dict[str, list[Figure]] = {name: [] for name in sides}
        for turn in rounds(self.args):
            for name, measure in in_turn(sides, turn):
                figures = measure()
                if turn > 0:
                    found[name] += figures
                    middle = statistics.median(map(float, figures))
                    self.say(f"{what}, round {turn}: {name} {middle:,.1f} {unit}")
        return found


@contextlib.contextmanager
def spark_bench(name: str, args: argparse.Namespace) -> "Iterator[SparkBench]":
    """Run a cluster and a session within the block, for the benchmark of that name."""
    say = report_line if args.json else write_line
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch())
        servers = stack.enter_context(bench_cluster(folder, args.brokers, say))
        yield SparkBench(stack.enter_context(bench_session(name)), servers, args, say)


def trigger_times_ms(writer: "DataStreamWriter", triggers: int, warm_up: int) -> list[int]:
    """Return the times of so many micro-batches with rows, after those that warm up."""
    with scratch() as checkpoint:
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            return _wait_for_triggers(query, triggers + warm_up)[warm_up:]
        finally:
            query.stop()


class Trigger(NamedTuple):
    """A micro-batch with rows; as a number, its time."""

    rows: int
    time_ms: int
    phases_ms: Mapping[str, int]
    """The time of each phase, by Spark's name for it."""

    def __float__(self) -> float:
        return float(self.time_ms)


def triggers_to_the_end(writer: "DataStreamWriter") -> list[Trigger]:
    """Return all micro-batches of a query that reads what exists now. It ends by itself: one that
    is stopped within a micro-batch kills tasks, whose Python workers complain of a broken pipe."""
    with scratch() as checkpoint:
        query = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )
        try:
            ended = query.awaitTermination(QUERY_TIMEOUT_S)
            _raise_failure(query)
        finally:
            query.stop()
        if not ended:
            raise CommandError(
                f"a streaming query takes longer than {QUERY_TIMEOUT_S} s; ask for less with "
                "--records or --triggers"
            )
        return [
            Trigger(
                progress.numInputRows,
                progress.durationMs["triggerExecution"],
                dict(progress.durationMs),
            )
            for progress in query.recentProgress
            if progress.numInputRows
        ]


def _raise_failure(query: "StreamingQuery") -> None:
    error = query.exception()
    if error is not None:
        raise CommandError(f"the streaming query failed: {_last_line(str(error))}")


def _wait_for_triggers(query: "StreamingQuery", triggers: int) -> list[int]:
    by_batch: dict[int, int] = {}
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while len(by_batch) < triggers:
        for progress in query.recentProgress:
            if progress.numInputRows:
                by_batch[progress.batchId] = progress.durationMs["triggerExecution"]
        _raise_failure(query)
        if time.monotonic() > deadline:
            raise CommandError(
                f"{len(by_batch)} of {triggers} micro-batches in {QUERY_TIMEOUT_S} s; "
                "ask for fewer with --triggers"
            )
        time.sleep(0.05)
    return [by_batch[batch] for batch in sorted(by_batch)][:triggers]


def processor_time_s(spark: "SparkSession") -> float:
    """Return the processor time so far of the session's JVM and its living Python processes."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    used: dict[int, int] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name of the program before it may have blanks and parentheses.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = int(fields[11]) + int(fields[12])
    family = [int(jvm.java.lang.ProcessHandle.current().pid())]
    for process_id in family:
        family += [child for child, parent in parents.items() if parent == process_id]
    return sum(used.get(each, 0) for each in family) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def bench_session(name: str) -> "Iterator[SparkSession]":
    """Yield a session that has the formats in memory; stop it unless it ran before the block."""
    from pyspark.sql import SparkSession

    from benchmarks.support.spark_in_memory import InMemoryFormat

    os.environ["PYSPARK_PYTHON"] = sys.executable
    running = SparkSession.getActiveSession()
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName(f"headrace bench {name}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    # A query that is stopped in a micro-batch logs at length; a failed one is reported anyway.
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(InMemoryFormat)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


@contextlib.contextmanager
def bench_cluster(folder: Path, brokers: int, say: Say) -> Iterator[str]:
    """Run a cluster within the block, and yield its bootstrap servers."""
    from storage_engine.tools.local.cluster_plan import UpRequest
    from storage_engine.tools.local.local_cluster import LocalCluster

    request = UpRequest(brokers=brokers, port=0)
    with LocalCluster.running(folder, request) as cluster:
        say(f"cluster of {brokers} on {cluster.bootstrap_servers}")
        yield cluster.bootstrap_servers


def _last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]
