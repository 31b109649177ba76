"""Measures the processor time and the resident memory of brokers without work.

The benchmark starts three brokers over loopback, with default settings, reads their memory, makes
a topic with three replicas, so that each broker has all of its partitions, writes a record to each
with acks=all, waits some seconds, and measures. Each figure is the highest among the brokers.
Processor time is that of all threads, in the kernel too: other load on the machine hardly changes
it, except by emptying caches. The limit is a process that wakes up as often and does nothing.

examples:
  headrace bench idle
  headrace bench idle --partitions 100 --seconds 5 --json
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS, Goal, Result, alone, beside, cpu_seconds
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

PROCESSOR_GOAL = Goal(most=1.0)
MEMORY_GOAL = Goal(most=60.0)
"""The project's own goals, for 2,000 partitions."""

_TOPIC = "idle"
_BROKERS = 3
_IN_SYNC_MS = 300_000
_SLEEP_S = 0.001


class _Usage(NamedTuple):
    """The processor time and wake-ups of a process so far."""

    processor_s: float
    wake_ups: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench idle`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--partitions", 2000, "partitions with three replicas each"),
        ("--settle", 20, "seconds without work before the measurement"),
        ("--seconds", 30, "seconds of the measurement"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench idle`."""
    with scratch(args.dir) as folder:
        results = list(
            _measure(folder, args.partitions, settle_s=args.settle, seconds=args.seconds)
        )
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _measure(folder: Path, partitions: int, *, settle_s: int, seconds: int) -> Iterator[Result]:
    from benchmarks.support.failover_clients import Survivors
    from storage_engine.client.admin.topics import create_topic
    from storage_engine.client.cluster import Cluster
    from storage_engine.net.deadline import Deadline
    from storage_engine.tools.local.cluster_plan import UpRequest
    from storage_engine.tools.local.local_cluster import LocalCluster

    request = UpRequest(brokers=_BROKERS, port=0, settings=())
    with LocalCluster.running(folder / "cluster", request) as cluster:
        pids = [entry.pid for entry in cluster.state.brokers if entry.pid is not None]
        empty_kib = max(_resident_kib(pid, "Rss") for pid in pids)
        empty_own_kib = max(map(_own_kib, pids))
        everyone = list(range(1, _BROKERS + 1))
        assignment = {p: everyone[p % 3 :] + everyone[: p % 3] for p in range(partitions)}
        with Cluster(cluster.bootstrap_servers) as client:
            create_topic(client, _TOPIC, assignment=assignment)
        with Survivors([(entry.host, entry.port) for entry in cluster.state.brokers]) as everybody:
            # Metadata name replicas before they are there; acks=all waits for them.
            everybody.write_to_all(_TOPIC, Deadline.after(_IN_SYNC_MS))
        report_line(f"{partitions} partitions are in sync; {settle_s} s to settle")
        time.sleep(settle_s)
        before, started = [_usage(pid) for pid in pids], time.monotonic()
        time.sleep(seconds)
        passed_s = time.monotonic() - started
        spent = [
            _Usage(now.processor_s - then.processor_s, now.wake_ups - then.wake_ups)
            for now, then in zip([_usage(pid) for pid in pids], before, strict=True)
        ]
        resident = [_resident_kib(pid, "Rss") for pid in pids]
        divided = [_resident_kib(pid, "Pss") for pid in pids]
        own = [_own_kib(pid) for pid in pids]
    most = max(spent)
    sleeper_s = cpu_seconds(lambda: _wake_up(max(1, most.wake_ups)))
    yield beside(
        f"{partitions} partitions: processor time, % of one; limit: only wakes up",
        100 * most.processor_s / passed_s,
        100 * sleeper_s / passed_s,
        goal=PROCESSOR_GOAL,
    )
    yield alone(f"{partitions} partitions: wake-ups a second", most.wake_ups / passed_s)
    yield alone(
        f"{partitions} partitions: resident memory, MiB", max(resident) / 1024, goal=MEMORY_GOAL
    )
    yield alone("of that, with shared pages divided, MiB", max(divided) / 1024)
    yield alone("of that, without shared pages, MiB", max(own) / 1024)
    yield alone("no partition: resident memory, MiB", empty_kib / 1024)
    yield alone("no partition: without shared pages, MiB", empty_own_kib / 1024)
    # The broker that takes most is the controller, which keeps all partitions a second time.
    yield alone("a replica more, KiB", (min(resident) - empty_kib) / partitions)
    yield alone("a replica more on the controller, KiB", (max(resident) - empty_kib) / partitions)


def _usage(pid: int) -> _Usage:
    """Return the usage of all living threads."""
    nanoseconds = wake_ups = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds += int((task / "schedstat").read_text().split()[0])
        status = (task / "status").read_text().splitlines()
        line = next(each for each in status if each.startswith("voluntary_ctxt_switches:"))
        wake_ups += int(line.split()[1])
    return _Usage(nanoseconds / 1e9, wake_ups)


def _own_kib(pid: int) -> int:
    """Return the memory without the pages, mostly of libraries, that other processes share."""
    return _resident_kib(pid, "Private_Clean") + _resident_kib(pid, "Private_Dirty")


def _resident_kib(pid: int, name: str) -> int:
    """Return `Rss`, or a part of it: `Pss` counts a shared page in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise UsageError(f"/proc/{pid}/smaps_rollup has no line {name}: run it on Linux 4.14 or newer")


def _wake_up(times: int) -> None:
    for _ in range(times):
        time.sleep(_SLEEP_S)
