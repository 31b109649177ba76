"""The lake beside Structured Streaming from Apache Kafka into a table of Delta Lake, in one run.

Both write a topic that is full already, of the same rows in as many partitions. Ours has one core,
theirs one task at a time; what else its JVM does may have the other core. Theirs does not put files
together.
"""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.clusters import spark_of, their_brokers
from benchmarks.beside_kafka.jars import KAFKA, fetch_jars
from benchmarks.beside_kafka.processor_time import cpu_times
from benchmarks.beside_kafka.rows import THEIRS
from benchmarks.beside_kafka.sides import Spark
from benchmarks.beside_kafka.told import SparkJob
from benchmarks.lake.jars import DELTA, DELTA_CONNECTOR, DELTA_SETTINGS, delta_environment
from benchmarks.lake.lakes import Lakes, rows_in
from benchmarks.lake.rates import OPAQUE, TYPED, VALUE_BYTES, Round, fill, round_of
from benchmarks.support.brokers import Brokers
from benchmarks.support.rounds import Goal, Result, compared
from benchmarks.typed.topics import PARTITIONS, fill_opaque
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

RATE_GOAL = Goal(least=3.0)
COST_GOAL = Goal(most=0.33)

_REPLICAS = 3
_BATCHES = 4
"""The micro-batches of a round."""
_MILLION = 1_000_000


def beside_spark(lakes: Lakes, args: argparse.Namespace) -> Iterator[Result]:
    """Give the figures of both sides, and their ratios."""
    for name in (TYPED, OPAQUE):
        topic = f"spark-{name}"
        fill(lakes.brokers.bootstrap_servers, name, topic, args.rows)
    with _their_side(args) as theirs:
        for name in (TYPED, OPAQUE):
            theirs.fill(name, args.rows)
        for name in (TYPED, OPAQUE):
            yield from _compared(lakes, theirs, name, args)


def _compared(
    lakes: Lakes, theirs: "_Theirs", name: str, args: argparse.Namespace
) -> Iterator[Result]:
    mine: list[Round] = []
    its: list[Round] = []
    topic = f"spark-{name}"
    lakes.have_tables(topic)
    for number in range(args.rounds + 1):
        its.append(theirs.round_of(name, args.rows))
        place = lakes.folder / f"beside-{number}" / topic
        mine.append(round_of(lakes, place, args.rows))
        report_line(
            f"{name}, round {number}: {mine[-1].rate:,.0f} rows/s, Spark {its[-1].rate:,.0f}"
        )
    lakes.forget(topic)
    # The first one warms the JVM up.
    mine, its = mine[1:], its[1:]
    yield compared(
        f"{name}: rows/s (limit: Spark from Apache Kafka into Delta)",
        [each.rate for each in mine],
        [each.rate for each in its],
        goal=RATE_GOAL,
    )
    yield compared(
        f"{name}: processor s a million rows, without brokers",
        [each.lake_s for each in mine],
        [each.lake_s for each in its],
        goal=COST_GOAL,
    )
    yield compared(
        f"{name}: processor s a million rows, of brokers",
        [each.brokers_s for each in mine],
        [each.brokers_s for each in its],
    )


class _Theirs:
    def __init__(self, folder: Path, brokers: Brokers, spark: Spark) -> None:
        self._folder = folder
        self._brokers = brokers
        self._spark = spark
        self._rounds = 0

    def fill(self, name: str, rows: int) -> None:
        servers = self._brokers.bootstrap_servers
        if name == OPAQUE:
            fill_opaque(servers, name, rows, VALUE_BYTES)
            return
        with Cluster(servers) as cluster:
            create_topic(cluster, name, PARTITIONS, _REPLICAS)
        job: SparkJob = {"kind": "fill", "topic": name, "rows": rows}
        self._spark.do(job)

    def round_of(self, name: str, rows: int) -> Round:
        self._rounds += 1
        place = self._folder / f"{name}-{self._rounds}"
        job: SparkJob = {"kind": name, "topic": name, "rows": rows, "out": str(place)}
        job["rows_per_batch"] = -(-rows // _BATCHES)
        before = cpu_times(self._brokers.pids, self._spark.pid)
        (batch,) = self._spark.do(job)["batches"]
        took = cpu_times(self._brokers.pids, self._spark.pid).since(before)
        if (found := rows_in(place)) != rows:
            raise CommandError(f"Spark has written {found} rows of {rows} into {place}")
        return Round(
            rate=rows / batch["time_ms"] * 1000,
            lake_s=(took.jvm + took.python) / rows * _MILLION,
            brokers_s=took.brokers / rows * _MILLION,
        )


@contextlib.contextmanager
def _their_side(args: argparse.Namespace) -> Iterator[_Theirs]:
    args.folder.mkdir(parents=True, exist_ok=True)
    jars = [
        *fetch_jars(args.folder, DELTA),
        *fetch_jars(args.folder, DELTA_CONNECTOR),
    ]
    kafka = fetch_jars(args.folder, KAFKA)
    python = delta_environment(args.folder)
    asked = argparse.Namespace(cores=1, conf=DELTA_SETTINGS)
    worker = "benchmarks.lake.spark_worker"
    with (
        scratch(args.dir) as folder,
        their_brokers(folder, kafka) as brokers,
        spark_of(THEIRS, brokers, python, worker, asked, jars) as spark,
    ):
        yield _Theirs(folder, brokers, spark)
