"""Starts both clusters and the acknowledger, measures them by turns, and stops them.

Rule: all run all the time, so that each is measured beside the same idle other ones.
"""

import argparse
import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.arguments import scratch
from benchmarks.beside_kafka import topics
from benchmarks.beside_kafka.clusters import our_brokers, their_brokers
from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.jars import KAFKA, KAFKA_TOOLS, fetch_jars
from benchmarks.beside_kafka.processor_time import check_proc, seconds_of
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.clients import librdkafka
from benchmarks.clients.java import JavaTools
from benchmarks.clients.loads import (
    GIGABYTE,
    GROUPS,
    LIBRDKAFKA,
    PARTITIONS,
    RATES,
    REQUESTS,
    ROWS,
    ProducerLoad,
    loads_of,
)
from benchmarks.clients.results import CEILING, ClientResult, Turn, result_of
from benchmarks.support.brokers import Brokers
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

_TOPIC = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The running clusters and tools."""

    ours: Brokers
    theirs: Brokers
    acknowledger: str
    java: JavaTools

    def in_turn(self, turn: int) -> list[tuple[str, Brokers]]:
        """Return both sides, each first in every other round."""
        sides = [(OURS, self.ours), (THEIRS, self.theirs)]
        return sides if turn % 2 else sides[::-1]

    def produce(self, client: str) -> Callable[[str, str, ProducerLoad], float]:
        return librdkafka.produce if client == LIBRDKAFKA else self.java.produce

    def consume(self, client: str) -> Callable[[str, str, int], float]:
        return librdkafka.consume if client == LIBRDKAFKA else self.java.consume


def compare(args: argparse.Namespace) -> list[ClientResult]:
    """Return a result for each row of the requested groups."""
    check_proc()
    find_java()
    librdkafka.check_installed()
    turns: dict[str, list[Turn]] = {}
    with _all_up(args) as peers:
        for group in [each for each in GROUPS if not args.only or each in args.only]:
            turns[group] = []
            # The first warms up, and its figures are forgotten.
            for number in range(args.rounds + 1):
                turn = _turn_of(group, peers, args, number)
                if number:
                    turns[group].append(turn)
    return [result_of(row, turns[row.group]) for row in ROWS if row.group in turns]


def _turn_of(group: str, peers: Peers, args: argparse.Namespace, number: int) -> Turn:
    turn: Turn = {}
    if group == REQUESTS:
        for rate in RATES:
            for name, figures in _request_turn(peers, args, rate, number).items():
                turn[name] = {**turn.get(name, {}), **figures}
    else:
        turn = _client_turn(group, peers, args, number)
    when = f"round {number}" if number else "to warm up"
    report_line(f"{group}, {when}: {_line(group, turn)}")
    return turn


def _line(group: str, turn: Turn) -> str:
    """Return the first figures of a group, which show that the benchmark goes on."""
    row = next(row for row in ROWS if row.group == group)
    figures = ", ".join(f"{name} {figures[row.name]:,.1f}" for name, figures in turn.items())
    return f"{row.what}: {figures}"


def _request_turn(peers: Peers, args: argparse.Namespace, rate: int, number: int) -> Turn:
    turn: Turn = {}
    for name, brokers in peers.in_turn(number):
        topic = f"requests-{rate}-{number}"
        with topics.target(brokers.bootstrap_servers, topic, PARTITIONS):
            turn[name] = librdkafka.request_latencies(brokers, topic, rate, args.seconds)
    alone = librdkafka.acknowledged_alone(peers.acknowledger, "requests", rate, args.seconds)
    return {**turn, CEILING: alone}


def _client_turn(client: str, peers: Peers, args: argparse.Namespace, number: int) -> Turn:
    """Produce all loads, then read all records; the brokers' processor time is for both."""
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    took_s: dict[str, float] = defaultdict(float)
    loads = loads_of(client, args.rows)
    records, volume = sum(load.records for load in loads), sum(load.bytes for load in loads)
    topic = f"{client}-{number}"

    def timed(name: str, brokers: Brokers, row: str, work: Callable[[], float]) -> None:
        before = seconds_of(brokers.pids)
        figures[name][row] = work()
        took_s[name] += seconds_of(brokers.pids) - before

    with contextlib.ExitStack() as stack:
        sides = peers.in_turn(number)
        for _, brokers in sides:
            stack.enter_context(topics.target(brokers.bootstrap_servers, topic, PARTITIONS))
        produce, consume = peers.produce(client), peers.consume(client)
        for load in loads:
            for name, brokers in sides:
                servers = brokers.bootstrap_servers
                timed(name, brokers, load.name, partial(produce, servers, topic, load))
            figures[CEILING][load.name] = produce(peers.acknowledger, topic, load)
        for name, brokers in sides:
            servers = brokers.bootstrap_servers
            topics.check_rows(servers, topic, PARTITIONS, records)
            timed(name, brokers, f"{client}-consume", partial(consume, servers, topic, records))
            figures[name][f"{client}-cpu"] = took_s[name] / (volume / GIGABYTE)
    return dict(figures)


@contextlib.contextmanager
def _all_up(args: argparse.Namespace) -> Iterator[Peers]:
    args.folder.mkdir(parents=True, exist_ok=True)
    kafka = fetch_jars(args.folder, KAFKA)
    tools = fetch_jars(args.folder, KAFKA_TOOLS)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        report_line("starting both clusters")
        yield Peers(
            ours=stack.enter_context(our_brokers(folder)),
            theirs=stack.enter_context(their_brokers(folder, kafka)),
            acknowledger=stack.enter_context(running_acknowledger(folder)),
            java=JavaTools([*kafka, *tools], folder),
        )


@contextlib.contextmanager
def running_acknowledger(folder: Path) -> Iterator[str]:
    """Run the acknowledger within the block, and yield its bootstrap servers."""
    command = [sys.executable, "-P", "-m", "benchmarks.clients.acknowledger"]
    command += ["--partitions", str(PARTITIONS)]
    log = folder / "acknowledger.log"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    with tethered(command, log=log, folder=folder, environment=environment, talks=True) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip()
        if not servers:
            process.wait()
            check_runs(process, "the acknowledger", log)
        yield servers
