"""The steps of the benchmark of a drain."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.kill_rounds import NONE, producer_name, producer_of
from benchmarks.support.rounds import Goal, Result, alone, percentile, rounded
from benchmarks.support.steady_producers import lost_and_doubled
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
            _drain(servers, folder, args)
            ended_s = time.time()
            time.sleep(1.0)
        before = producer.latencies_ms(began_s, drained_s)
        during = producer.latencies_ms(drained_s, ended_s)
        yield from _compared(args, before, during)
        yield alone("drain, s", ended_s - drained_s)
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


def _drain(servers: str, folder: Path, args: argparse.Namespace) -> None:
    """In a process of its own: the producer is to be measured, and not our interpreter."""
    command = [
        *(sys.executable, "-m", "storage_engine.tools.cli", "drain", "1"),
        *("--bootstrap-server", servers, "--state", str(folder / "drain.json")),
        *("--throttle", str(args.throttle), "--wave-partitions", str(args.wave_partitions)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        report_line(line)
    if done.returncode:
        raise CommandError(f"headrace drain ended with {done.returncode}")


def _left(servers: str) -> int:
    with Cluster(servers) as client:
        topics = client.metadata().topics
        return sum(
            1 in partition.replicas
            for name in topics
            for partition in topics[name].partitions.values()
        )
