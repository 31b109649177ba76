"""Starts both sides of the comparison and a schema registry, and measures the sides by turns."""

import argparse
import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from benchmarks.arguments import scratch
from benchmarks.avro.rows import AVRO, FUNCTIONS, ROWS, SPARK_ALL, SPARK_TWO, SPARK_WRITE
from benchmarks.beside_kafka.clusters import our_brokers, spark_of, their_brokers
from benchmarks.beside_kafka.environment import make_environment
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, SPARK_AVRO, fetch_jars
from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.beside_kafka.tethered import tethered
from benchmarks.support.brokers import HOST, free_ports, wait_until
from benchmarks.typed.columns import ALL, TWO
from benchmarks.typed.comparison import Turns, measure_rounds
from benchmarks.typed.rows import Result, Round, result_of
from benchmarks.typed.sparks import SparkSide
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

TOPIC = "rides"
_WORKER = "benchmarks.avro.spark_worker"
_START_S = 60


def compare(args: argparse.Namespace) -> list[Result]:
    """Return a result for each requested row."""
    check_proc()
    find_java()
    rows = [row for row in ROWS if not args.only or row.name in args.only]
    args.folder.mkdir(parents=True, exist_ok=True)
    with scratch(args.dir) as folder, _sides(args, folder) as (ours, theirs):
        made = ours.digest_of_made(args.rows)
        for name, side in ((OURS, ours), (THEIRS, theirs)):
            side.fill(TOPIC, args.rows)
            report_line(f"filled topic '{TOPIC}' of {name}")
            side.check_digest(TOPIC, made)
        rounds: dict[str, list[Round]] = {}
        for row in rows:
            turns = _turns(row.group, args, ours, theirs)
            rounds[row.group] = measure_rounds(row.group, turns, args.rounds)
    return [result_of(row, rounds[row.group]) for row in rows]


def _turns(group: str, args: argparse.Namespace, ours: SparkSide, theirs: SparkSide) -> Turns:
    if group == SPARK_WRITE:
        # A quarter: Spark holds them in memory.
        written = args.rows // 4
        return {AVRO: ours.writer(written), FUNCTIONS: theirs.writer(written)}
    columns = {SPARK_TWO: TWO, SPARK_ALL: ALL}[group]
    return {
        AVRO: functools.partial(ours.read, TOPIC, args.rows, columns),
        FUNCTIONS: functools.partial(theirs.read, TOPIC, args.rows, columns),
    }


@contextlib.contextmanager
def _sides(args: argparse.Namespace, folder: Path) -> Iterator[tuple[SparkSide, SparkSide]]:
    jars = [*fetch_jars(args.folder, CONNECTOR), *fetch_jars(args.folder, SPARK_AVRO)]
    kafka = fetch_jars(args.folder, KAFKA)
    python = make_environment(args.folder)
    with contextlib.ExitStack() as stack:
        report_line("starting Headrace and its registry")
        brokers = stack.enter_context(our_brokers(folder))
        url = stack.enter_context(_registry(folder, brokers.bootstrap_servers))
        report_line("starting Apache Kafka")
        theirs = stack.enter_context(their_brokers(folder, kafka))
        # Both Sparks are told by a setting of theirs, which Spark itself does not know.
        args.conf = {**args.conf, "spark.headrace.bench.registry": url}
        sides = []
        for name, each, with_jars in ((OURS, brokers, []), (THEIRS, theirs, jars)):
            running = spark_of(name, each, python, _WORKER, args, with_jars)
            sides.append(SparkSide(name, each, stack.enter_context(running), is_typed=False))
        yield sides[0], sides[1]


@contextlib.contextmanager
def _registry(folder: Path, servers: str) -> Iterator[str]:
    """Run a registry on the brokers within the block; its URL."""
    (port,) = free_ports(1)
    listen = f"{HOST}:{port}"
    command = [sys.executable, "-m", "storage_engine.tools.cli", "registry"]
    command += ["--bootstrap-server", servers, "--listen", listen]
    log = folder / "registry.log"
    with tethered(command, log=log, folder=folder) as process:
        url = f"http://{listen}"
        wait_until(lambda: _is_there(url), "the registry", [(process, log)], _START_S)
        yield url


def _is_there(url: str) -> bool:
    try:
        with urlopen(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
