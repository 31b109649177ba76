"""Measures one broker over TCP against the most that the loopback and the CPU can do.

The benchmark starts a broker in a temporary directory, and measures it and its limits by turns:

  produce        large batches, acks=1, several connections: against a plain send of the same bytes
  fetch          from the page cache, one consumer with two requests in flight and with one:
                 against a plain send of the same bytes, mapped beforehand
  consumers      CPU time of the broker per byte, with many consumers of one partition: against one
  small produce  small batches on one connection: against a server that only answers (in C where
                 there is a compiler, else in Python), asked by the same client

Load and limits run in processes of their own. Each number is the median of several rounds, each
ratio the median of the rounds' ratios; the spread is that of the ratios, lowest and highest. The
CPU ratio is the CPU time of the process that has the broker's place in the limit over that of the
broker for the same work: other load on the machine weighs less on it than on rates. Before
each round that writes, a file of as many bytes is written and removed: the first use of a page of
memory can cost a virtual machine ten times what later ones do.
MB are 10^6 bytes.

examples:
  headrace bench wire
  headrace bench wire --rounds 3 --bytes 67108864 --json
"""

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.arguments import add_numbers, scratch
from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.beside_kafka.topics import target
from benchmarks.support import wire_load
from benchmarks.support.rounds import Cell, by_turns, ratios_of
from benchmarks.support.wire_echo import Echo, compiled_echo, python_echo
from benchmarks.support.wire_frames import ProduceFrames, produce_frames
from benchmarks.support.wire_load import Endpoint, Worker
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import print_json, print_table, report_line

LARGE_BATCH_BYTES = 128 * 1024
LARGE_CONNECTIONS = 4
LARGE_IN_FLIGHT = 4
SMALL_BATCH_BYTES = 1024
SMALL_IN_FLIGHT = 32
FETCH_BYTES = 1 << 20
FETCHES_IN_FLIGHT = (2, 1)
"""The fetches in flight of one consumer. With one, the broker has nothing to send from the last
byte of an answer until the next request; a reader that wants more keeps a second one in flight."""
CONSUMERS = 16

LEAST_PRODUCE_RATIO = 0.6
LEAST_FETCH_RATIO = 0.85
MOST_CONSUMERS_RATIO = 1.0
LEAST_SMALL_RATIO = 0.22
LEAST_SMALL_REQUESTS_PER_S = 250_000
"""The project's own goals."""

_LARGE_RING = 64
_SMALL_RING = 256
_BROKER_START_S = 60.0

COLUMNS = ("what", "measured", "limit", "of", "ratio", "spread", "goal", "met", "CPU ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One comparison; the unit is in `what`."""

    what: str
    measured: float
    limit: float
    limit_is: str
    ratio: float
    ratio_lowest: float
    ratio_highest: float
    goal: str
    met: bool
    cpu_ratio: float | None = None
    """The limit's CPU time over the broker's, for the same work; None: not of interest."""


class _Figure(NamedTuple):
    """The figure of one round of a measurement."""

    value: float
    cpu_s: float
    """CPU time of the broker, or of the process in its place."""


@dataclass(slots=True, kw_only=True)
class _Bench:
    """The broker, the workers and the arguments of all measurements."""

    servers: str
    broker: Endpoint
    pid: int
    near: Worker
    """The process that sends the load."""
    far: Worker
    """The process at the other end of the limits."""
    args: argparse.Namespace
    folder: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench wire`."""
    add_numbers(
        parser,
        ("--bytes", 512 << 20, "bytes of each round with large batches"),
        ("--requests", 300_000, "requests of each round with small batches"),
        ("--rounds", 5, "rounds of each measurement, after one to warm up"),
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="directory for the broker's files, on the disk that the log will be on "
        "(default: the system's temporary directory)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench wire`; 0 also when a goal is missed, as this only measures."""
    if args.dir is not None and not args.dir.is_dir():
        raise CommandError(f"'{args.dir}' is not a folder; give another --dir")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        near, far = stack.enter_context(Worker()), stack.enter_context(Worker())
        bench = stack.enter_context(_bench(folder, near, far, args))
        results = [
            _measure_large_produce(bench),
            *_measure_fetch(bench),
            *_measure_small_produce(bench),
        ]
    if args.json:
        print_json([asdict(result) for result in results])
    else:
        print_table(COLUMNS, [_row(result) for result in results])
    return 0


def _row(result: Result) -> list[Cell]:
    fields = list(asdict(result).values())
    return [*fields[:5], f"{result.ratio_lowest}-{result.ratio_highest}", *fields[7:]]


@contextlib.contextmanager
def _bench(folder: Path, near: Worker, far: Worker, args: argparse.Namespace) -> Iterator[_Bench]:
    from storage_engine.tools.local.cluster_plan import UpRequest
    from storage_engine.tools.local.local_cluster import LocalCluster

    request = UpRequest(brokers=1, port=0)
    with LocalCluster.running(folder / "cluster", request, timeout_s=_BROKER_START_S) as cluster:
        (entry,) = cluster.state.brokers
        assert entry.pid is not None
        report_line(f"broker on {cluster.bootstrap_servers}")
        yield _Bench(
            servers=cluster.bootstrap_servers,
            broker=Endpoint(entry.port),
            pid=entry.pid,
            near=near,
            far=far,
            args=args,
            folder=folder,
        )


def _measure_large_produce(bench: _Bench) -> Result:
    frames = produce_frames("large", LARGE_BATCH_BYTES, _LARGE_RING, seed=1)
    requests = max(1, bench.args.bytes // LARGE_BATCH_BYTES // LARGE_CONNECTIONS)
    size = requests * LARGE_CONNECTIONS * frames.frame_bytes

    def limit() -> _Figure:
        def push() -> float:
            bench.far.begin(wire_load.drain, size)
            load = (bench.far.port, frames.ring, frames.frame_bytes, size)
            seconds = bench.near.run(wire_load.push, *load)
            bench.far.result()
            return float(size / seconds / 1e6)

        return _with_cpu(bench.far.pid, push)

    def measure() -> _Figure:
        def produce() -> float:
            load = (frames, LARGE_CONNECTIONS, LARGE_IN_FLIGHT, requests)
            return float(size / _produce(bench, *load) / 1e6)

        bench.near.run(wire_load.touch_memory, bench.folder, size)
        with target(bench.servers, "large", 1, 1):
            return _with_cpu(bench.pid, produce)

    what = f"produce, {LARGE_BATCH_BYTES >> 10} KiB batches, MB/s"
    measured, limits = _alternate(bench, what, measure, limit)
    return _result(what, measured, limits, "loopback send", least=LEAST_PRODUCE_RATIO)


def _measure_fetch(bench: _Bench) -> list[Result]:
    frames = produce_frames("fetched", LARGE_BATCH_BYTES, _LARGE_RING, seed=1)
    per_answer = FETCH_BYTES // LARGE_BATCH_BYTES
    answers = max(1, bench.args.bytes // FETCH_BYTES)
    size = answers * FETCH_BYTES

    def limit() -> _Figure:
        # The same bytes, out of the same pages: a ring would come from the CPU's cache.
        (segment,) = bench.folder.glob("cluster/broker-1/data/fetched-0/*.log")

        def pull() -> float:
            bench.far.begin(wire_load.supply, segment, FETCH_BYTES, size)
            seconds = bench.near.run(wire_load.pull, bench.far.port, size)
            bench.far.result()
            return float(size / seconds / 1e6)

        return _with_cpu(bench.far.pid, pull)

    def fetch(consumers: int, answers_each: int, in_flight: int = 1) -> float:
        step = per_answer * frames.records_per_batch
        load = "fetched", consumers, FETCH_BYTES, step, answers_each, in_flight
        return bench.near.run(wire_load.fetch, bench.broker, *load)

    def measure(in_flight: int) -> _Figure:
        return _with_cpu(bench.pid, lambda: size / fetch(1, answers, in_flight) / 1e6)

    def cpu_per_gigabyte(consumers: int) -> _Figure:
        each = max(1, answers // consumers)
        used_s = _with_cpu(bench.pid, lambda: fetch(consumers, each)).cpu_s
        return _Figure(used_s / (each * consumers * FETCH_BYTES) * 1e9, used_s)

    with target(bench.servers, "fetched", 1, 1):
        _produce(bench, frames, 1, LARGE_IN_FLIGHT, answers * per_answer)
        results = []
        for in_flight in FETCHES_IN_FLIGHT:
            what = f"fetch, {FETCH_BYTES >> 20} MiB, {in_flight} in flight, MB/s"
            measured, limits = _alternate(bench, what, partial(measure, in_flight), limit)
            goal = LEAST_FETCH_RATIO
            results.append(_result(what, measured, limits, "loopback send", least=goal))
        what = f"fetch, {CONSUMERS} consumers, broker's CPU s/GB"
        measured, limits = _alternate(
            bench, what, lambda: cpu_per_gigabyte(CONSUMERS), lambda: cpu_per_gigabyte(1)
        )
    goal = MOST_CONSUMERS_RATIO
    return [*results, _result(what, measured, limits, "one consumer", most=goal, digits=4)]


def _measure_small_produce(bench: _Bench) -> list[Result]:
    frames = produce_frames("small", SMALL_BATCH_BYTES, _SMALL_RING, seed=1000)
    requests = bench.args.requests

    def measure() -> _Figure:
        bench.near.run(wire_load.touch_memory, bench.folder, requests * frames.frame_bytes)
        with target(bench.servers, "small", 1, 1):
            load = (frames, 1, SMALL_IN_FLIGHT, requests)
            return _with_cpu(bench.pid, lambda: requests / _produce(bench, *load))

    def ask(server: Echo) -> _Figure:
        load = (Endpoint(server.port), frames, 1, SMALL_IN_FLIGHT, requests)
        return _with_cpu(server.pid, lambda: requests / bench.near.run(wire_load.produce, *load))

    what = f"produce, {SMALL_BATCH_BYTES >> 10} KiB batches, requests/s"
    with compiled_echo(bench.folder, frames.answer) as compiled:

        def limit() -> _Figure:
            if compiled is not None:
                return ask(compiled)
            with python_echo(bench.far, frames) as slower:
                return ask(slower)

        measured, limits = _alternate(bench, what, measure, limit)
    limit_is = "echo in Python" if compiled is None else "echo in C"
    relative = _result(what, measured, limits, limit_is, least=LEAST_SMALL_RATIO)
    goal = [_Figure(LEAST_SMALL_REQUESTS_PER_S, 0.0)] * len(measured)
    return [relative, replace(_result(what, measured, goal, "goal", least=1.0), cpu_ratio=None)]


def _alternate(
    bench: _Bench, what: str, measure: Callable[[], _Figure], limit: Callable[[], _Figure]
) -> tuple[list[_Figure], list[_Figure]]:
    report_line(f"{what}: {bench.args.rounds} rounds")
    return by_turns(measure, limit, bench.args.rounds)


def _result(
    what: str,
    measured: list[_Figure],
    limits: list[_Figure],
    limit_is: str,
    *,
    digits: int | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Result:
    values, most_values = ([each.value for each in figures] for figures in (measured, limits))
    ratios = ratios_of(values, most_values)
    ratio = statistics.median(ratios)
    cpu_ratio = None
    if least is not None:
        goal, met = f">= {least}", ratio >= least
        spent, spent_by_limit = ([each.cpu_s for each in figures] for figures in (measured, limits))
        cpu_ratio = round(statistics.median(ratios_of(spent_by_limit, spent)), 2)
    else:
        assert most is not None
        goal, met = f"<= {most}", ratio <= most
    return Result(
        what=what,
        measured=round(statistics.median(values), digits),
        limit=round(statistics.median(most_values), digits),
        limit_is=limit_is,
        ratio=round(ratio, 2),
        ratio_lowest=round(min(ratios), 2),
        ratio_highest=round(max(ratios), 2),
        goal=goal,
        met=met,
        cpu_ratio=cpu_ratio,
    )


def _with_cpu(pid: int, work: Callable[[], float]) -> _Figure:
    """Return the result of `work`, with the CPU time that the process spent on it."""
    before = seconds_of([pid])
    value = work()
    return _Figure(value, seconds_of([pid]) - before)


def _produce(
    bench: _Bench, frames: ProduceFrames, connections: int, in_flight: int, requests: int
) -> float:
    load = (bench.broker, frames, connections, in_flight, requests)
    return bench.near.run(wire_load.produce, *load)
