"""The steps of the benchmark of a drain."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.support.kill_rounds import NONE, producer_name, producer_of
from benchmarks.support.rounds import Goal, Result, alone, percentile, rounded
from benchmarks.support.steady_producers import SteadyProducer, lost_and_doubled
from storage_engine.client import Producer
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.table import report_line

RATIO_GOAL = Goal(most=3.0)
_TOPIC = "drained"
_BROKERS = (1, 2, 3, 4)
_RECORD_BYTES = 10_000
_WARM_UP_S = 3.0
_AFTER_S = 2.0
_PHASES = ("leaders moved", "replicas moved")
"""As the command reports their ends."""
_END, _AFTER = "throttles removed", "after the drain"


def measure(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    """Yield one figure after the other."""
    with LocalCluster.running(
        folder / "cluster", UpRequest(brokers=len(_BROKERS), port=0)
    ) as cluster:
        servers = cluster.bootstrap_servers
        _fill(servers, args)
        with producer_of(servers, _TOPIC) as producer:
            time.sleep(_WARM_UP_S)
            began_s = time.time()
            time.sleep(args.seconds)
            drained_s = time.time()
            ends_s = _drain(servers, folder, args)
            time.sleep(_AFTER_S)
        before = producer.latencies_ms(began_s, drained_s)
        during = producer.latencies_ms(drained_s, ends_s[_END])
        yield from _compared(args, before, during)
        yield from _phases(producer, drained_s, ends_s)
        yield alone("drain, s", ends_s[_END] - drained_s)
        yield alone("replicas left on the broker", _left(servers), goal=NONE)
        acknowledged = producer.numbers()
        lost, doubled = lost_and_doubled(servers, _TOPIC, acknowledged)
        what = f"{len(acknowledged)} acknowledged records"
        yield alone(f"{what}: lost", lost, goal=NONE)
        yield alone(f"{what}: doubled", doubled, goal=NONE)
        yield alone(f"{what}: sends that failed", producer.failed, goal=NONE)


def _compared(
    args: argparse.Namespace, before: list[float], during: list[float]
) -> Iterator[Result]:
    what = f"drain of a broker of {args.partitions} partitions, {args.mib} MiB, {producer_name()}"
    for percent, goal in ((50, None), (99, RATIO_GOAL), (100, None)):
        measured, limit = percentile(during, percent), percentile(before, percent)
        ratio = rounded(measured / limit)
        yield Result(
            what=f"{what}: wait of {percent} % of {len(during)} records, ms; limit: before",
            measured=rounded(measured),
            limit=rounded(limit),
            ratio=ratio,
            goal=None if goal is None else str(goal),
            met=None if goal is None else goal.is_met_by(ratio),
        )


def _phases(
    producer: SteadyProducer, began_s: float, ends_s: Mapping[str, float]
) -> Iterator[Result]:
    """Yield the waits of each phase. The first includes the start of the command."""
    for phase, ended_s in [*ends_s.items(), (_AFTER, ends_s[_END] + _AFTER_S)]:
        waits = producer.latencies_ms(began_s, ended_s)
        for percent in (50, 99, 100) if waits else ():
            what = f"{phase}, {ended_s - began_s:.1f} s: wait of {percent} % of {len(waits)}, ms"
            yield alone(what, percentile(waits, percent))
        began_s = ended_s


def _fill(servers: str, args: argparse.Namespace) -> None:
    """Every broker leads, and has replicas, and broker 1 leads the producer's partition."""
    count = len(_BROKERS)
    with Cluster(servers) as client:
        assignment = {
            number: tuple(_BROKERS[(number + place) % count] for place in range(3))
            for number in range(args.partitions)
        }
        create_topic(client, _TOPIC, assignment=assignment)
    record = os.urandom(_RECORD_BYTES)
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(args.mib * (1 << 20) // _RECORD_BYTES):
            producer.send(_TOPIC, record, partition=number % args.partitions)
        producer.flush()


def _drain(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Return when each phase ended, in seconds since 1970. In a process of its own: the producer is
    to be measured, and not our interpreter."""
    command = [
        *(sys.executable, "-m", "storage_engine.tools.cli", "drain", "1"),
        *("--bootstrap-server", servers, "--state", str(folder / "drain.json")),
        *("--throttle", str(args.throttle), "--wave-partitions", str(args.wave_partitions)),
    ]
    ends_s: dict[str, float] = {}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None, "it is a pipe"
        for line in process.stderr:
            report_line(line.rstrip())
            phase = line.partition(":")[0]
            if phase in _PHASES and line.rstrip().endswith(": done"):
                ends_s[phase] = time.time()
    ends_s[_END] = time.time()
    if process.returncode:
        raise CommandError(f"headrace drain ended with {process.returncode}")
    return ends_s


def _left(servers: str) -> int:
    with Cluster(servers) as client:
        topics = client.metadata().topics
        return sum(
            1 in partition.replicas
            for name in topics
            for partition in topics[name].partitions.values()
        )
