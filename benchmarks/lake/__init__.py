"""Measures how fast `headrace lake` writes topics into Delta tables, and what it takes.

Three brokers and replicas, four partitions. An instance on one core writes a topic that is full
already; the time is that from its first commit to its last, so that the start of the process does
not count. Rows of the typed topic have 20 mixed columns, those of the opaque one values of 100
random bytes. `visible` writes rows steadily, with a commit interval of 5 s, and looks when each
is in the table. `memory` has an instance write 100 topics, of which each has rows waiting. `union`
reads a topic of which 95 % are in its table and no longer in the log, beside one that is all in
its log, by Spark.

examples:
  headrace bench lake
  headrace bench lake --only typed --rows 500000 --rounds 1 --json
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.arguments import add_dir, add_numbers, add_only, check_size, scratch
from benchmarks.support.rounds import COLUMNS, Goal, Result, alone, percentile
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import print_results, report_line

VISIBLE_GOAL = Goal(most=6.0)
MEMORY_GOAL = Goal(most=512.0)

PARTS = ("typed", "opaque", "visible", "memory", "union")
_VALUE_BYTES = 100
_TOPICS = 100
_INTERVAL_MS = 5_000
_LEAST_ROWS = 10_000
_WAIT_S = 600.0
_STEADY_S = 60.0
_STEADY_PAUSE_S = 0.02
_DELTA = {"headrace.table.format": "delta", "headrace.table.commit.interval.ms": "5000"}
_POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench lake`."""
    add_only(parser, "part", PARTS)
    add_dir(parser)
    add_numbers(
        parser,
        ("--rows", 2_000_000, "rows of a topic"),
        ("--rounds", 2, "rounds of the two rates, the better of which counts"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench lake`."""
    check_size(args, _LEAST_ROWS)
    with scratch(args.dir) as folder:
        results = list(_measured(folder, args))
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _measured(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    from benchmarks.beside_kafka.clusters import our_brokers

    parts = args.only or PARTS
    with our_brokers(folder) as brokers:
        bench = _Bench(folder, brokers.bootstrap_servers, list(brokers.pids))
        for name in ("typed", "opaque"):
            if name in parts:
                yield from bench.rate(name, args.rows, args.rounds)
        if "visible" in parts:
            yield bench.visible()
        if "memory" in parts:
            yield bench.memory(args.rows // _TOPICS)
        if "union" in parts:
            from benchmarks.lake.union import united_reads

            servers, root = brokers.bootstrap_servers, folder / "union"
            yield from united_reads(servers, root, bench.write_table, args.rows, args.rounds)


class _Round(NamedTuple):
    rate: float
    """Rows a second."""
    lake_s: float
    """Processor time of the instance for a million rows."""
    brokers_s: float


class _Bench:
    def __init__(self, folder: Path, servers: str, brokers: list[int]) -> None:
        self._folder = folder
        self._servers = servers
        self._brokers = brokers
        self._instances = 0

    @contextlib.contextmanager
    def _lake(self, root: Path, *, cores: int) -> Iterator[int]:
        """Yield the process id of an instance, which has so many cores."""
        from benchmarks.beside_kafka.environment import ROOT
        from benchmarks.beside_kafka.tethered import tethered

        self._instances += 1
        name = f"lake-{self._instances}"
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "lake", "run"]
        command += ["--bootstrap-server", self._servers, "--root", str(root), "--group", name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = self._folder / f"{name}.log"
        with tethered(command, log=log, folder=self._folder, environment=environment) as process:
            os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:cores])
            yield process.pid

    def write_table(self, root: Path, topic: str, rows: int) -> None:
        """Have an instance write a topic's table until it has so many rows."""
        with self._lake(root, cores=os.cpu_count() or 1):
            _wait_for(lambda: _rows_in(root / topic) >= rows, f"{rows} rows")

    def rate(self, name: str, rows: int, rounds: int) -> Iterator[Result]:
        from benchmarks.typed.topics import fill_opaque, fill_typed
        from storage_engine.client.admin.topics import alter_topic_configs
        from storage_engine.client.cluster import Cluster

        topic = f"lake-{name}"
        report_line(f"{name}: {rows} rows are written")
        if name == "typed":
            fill_typed(self._servers, topic, rows)
        else:
            fill_opaque(self._servers, topic, rows, _VALUE_BYTES)
        with Cluster(self._servers) as cluster:
            alter_topic_configs(cluster, topic, _DELTA)
        found = [self._round(topic, rows, number) for number in range(rounds)]
        yield alone(f"{name}: rows/s, one core", max(each.rate for each in found))
        for who in ("lake", "brokers"):
            spent_s = min(getattr(each, f"{who}_s") for each in found)
            yield alone(f"{name}: {who}, processor s a million rows", spent_s)

    def _round(self, topic: str, rows: int, number: int) -> "_Round":
        from benchmarks.beside_kafka.processor_time import seconds_of

        place = self._folder / f"{topic}-{number}" / topic
        with self._lake(place.parent, cores=1) as pid:
            first = _wait_for(lambda: _rows_in(place), "the first commit")
            before, brokers_before = seconds_of([pid]), seconds_of(self._brokers)
            begun = time.monotonic()
            _wait_for(lambda: _rows_in(place) >= rows, f"{rows} rows")
            took_s, left = time.monotonic() - begun, max(1, rows - first)
            return _Round(
                rate=left / took_s,
                lake_s=(seconds_of([pid]) - before) / left * 1_000_000,
                brokers_s=(seconds_of(self._brokers) - brokers_before) / left * 1_000_000,
            )

    def visible(self) -> Result:
        """How long after its acknowledgement a row is in the table."""
        from storage_engine.client import Admin, NewTopic, Producer

        topic, root = "lake-visible", self._folder / "visible"
        configs = {**_DELTA, "headrace.table.commit.interval.ms": str(_INTERVAL_MS)}
        with Admin({"bootstrap.servers": self._servers}) as admin:
            admin.create_topics([NewTopic(name=topic, partitions=1, configs=configs)])
        report_line(f"visible: rows are written for {_STEADY_S:.0f} s")
        acknowledged: list[float] = []
        seen: list[float] = []
        with (
            self._lake(root, cores=os.cpu_count() or 1),
            Producer({"bootstrap.servers": self._servers, "linger.ms": 0}) as producer,
        ):
            producer.send(topic, b"first").result()
            _wait_for(lambda: _rows_in(root / topic), "the first commit")
            acknowledged.append(time.monotonic())
            seen.append(time.monotonic())
            end = time.monotonic() + _STEADY_S
            while time.monotonic() < end or len(seen) < len(acknowledged):
                if time.monotonic() < end:
                    producer.send(topic, b"x" * _VALUE_BYTES).result()
                    acknowledged.append(time.monotonic())
                seen += [time.monotonic()] * (_rows_in(root / topic) - len(seen))
                time.sleep(_STEADY_PAUSE_S)
        waits = [late - at for at, late in zip(acknowledged, seen, strict=True)]
        return alone(
            f"acknowledged until visible, interval {_INTERVAL_MS // 1000} s, P95, s",
            percentile(waits, 95),
            goal=VISIBLE_GOAL,
        )

    def memory(self, rows: int) -> Result:
        """The most resident memory of an instance while it writes many topics."""
        from benchmarks.typed.topics import fill_opaque
        from storage_engine.client.admin.topics import alter_topic_configs
        from storage_engine.client.cluster import Cluster

        topics = [f"lake-memory-{number:03}" for number in range(_TOPICS)]
        report_line(f"memory: {_TOPICS} topics get {rows} rows each")
        for topic in topics:
            fill_opaque(self._servers, topic, rows, _VALUE_BYTES)
        with Cluster(self._servers) as cluster:
            for topic in topics:
                alter_topic_configs(cluster, topic, _DELTA)
        root = self._folder / "memory"
        most_kib = 0
        with self._lake(root, cores=os.cpu_count() or 1) as pid:

            def are_written() -> bool:
                nonlocal most_kib
                most_kib = _peak_kib(pid)
                return all(_rows_in(root / topic) >= rows for topic in topics)

            _wait_for(are_written, "all topics", pause_s=1.0)
        return alone(
            f"resident memory with {_TOPICS} topics, MiB", most_kib / 1024, goal=MEMORY_GOAL
        )


def _rows_in(place: Path) -> int:
    """The number of rows of a table, from its log; 0 while there is none."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(place)):
        return 0
    actions = DeltaTable(str(place)).get_add_actions(flatten=True)
    return sum(int(each or 0) for each in actions["num_records"].to_pylist())


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise CommandError(f"/proc/{pid}/status has no line VmHWM")


def _wait_for(there: Callable[[], int], what: str, *, pause_s: float = _POLL_S) -> int:
    deadline = time.monotonic() + _WAIT_S
    while not (found := there()):
        if time.monotonic() > deadline:
            raise CommandError(f"the lake has not written {what} within {_WAIT_S:.0f} s")
        time.sleep(pause_s)
    return found
