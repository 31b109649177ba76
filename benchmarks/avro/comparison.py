"""Starts both sides, measures them by turns, and stops them.

Rule: both sides run all the time, so that each is measured beside the same idle other one.
"""

import argparse
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.arguments import scratch
from benchmarks.avro.registry import RunningRegistry, fill_schemas, read_p99_ms, running_registry
from benchmarks.avro.rides import checksum, fill, ride_schema
from benchmarks.avro.rows import (
    GET,
    READ_ALL,
    READ_TWO,
    ROWS,
    START,
    WRITE,
    Measured,
    Result,
    Round,
    alone,
    compared,
)
from benchmarks.avro.sparks import Expected, Side
from benchmarks.beside_kafka.clusters import our_brokers, spark_of, their_brokers
from benchmarks.beside_kafka.environment import make_environment
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, SPARK_AVRO, fetch_jars
from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.support.brokers import Brokers
from benchmarks.typed.columns import ALL, TWO
from storage_engine.client.schema_registry import SchemaRegistry
from storage_engine.client.schema_registry_http import RegistryAddress
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

TOPIC = "rides"
_WORKER = "benchmarks.avro.spark_worker"
_OF_REGISTRY = (START, GET)

Turn: TypeAlias = Callable[[Side, int], Measured]
"""Measures a side in a round; round 0 is to warm up."""


def measure(args: argparse.Namespace) -> list[Result]:
    """Return a result for each requested row."""
    check_proc()
    find_java()
    names = [row.name for row in ROWS if not args.only or row.name in args.only]
    found: dict[str, Result] = {}
    with scratch(args.dir) as folder:
        report_line("starting Headrace")
        with our_brokers(folder) as brokers:
            servers = brokers.bootstrap_servers
            texts = fill_schemas(servers, args.schemas)
            report_line(f"filled a registry with {len(texts):,} schemas")
            if START in names:
                found[START] = _starts(args, servers, folder)
            with running_registry(servers, folder) as registry:
                if GET in names:
                    found[GET] = _gets(args, registry, texts)
                if set(names).difference(_OF_REGISTRY):
                    found |= _with_spark(args, names, folder, brokers, registry)
    return [found[name] for name in names]


def _starts(args: argparse.Namespace, servers: str, folder: Path) -> Result:
    times, cpu_us = [], []
    for _ in range(args.rounds):
        with running_registry(servers, folder) as each:
            times.append(each.start_s)
            cpu_us.append(each.cpu_s / args.schemas * 1_000_000)
    return alone(START, times, cpu_us)


def _gets(args: argparse.Namespace, registry: RunningRegistry, texts: Mapping[int, str]) -> Result:
    times, cpu_us = [], []
    for turn in range(args.rounds + 1):
        before = registry.cpu_s
        time_ms = read_p99_ms(registry.url, texts)
        if turn:
            times.append(time_ms)
            cpu_us.append((registry.cpu_s - before) / len(texts) * 1_000_000)
    return alone(GET, times, cpu_us)


def _with_spark(
    args: argparse.Namespace,
    names: Collection[str],
    folder: Path,
    brokers: Brokers,
    registry: RunningRegistry,
) -> dict[str, Result]:
    with contextlib.closing(SchemaRegistry(RegistryAddress(urls=(registry.url,)))) as client:
        schema_id = client.register(f"{TOPIC}-value", ride_schema())
    with _sides(args, folder, brokers, registry, schema_id) as sides:
        ours, *_ = sides
        expected = Expected(
            rows=args.rows, checksum=checksum(args.rows), digest=ours.digest_of_made(args.rows)
        )
        for side in sides:
            side.check_all_columns(TOPIC, expected)
        report_line("both sides read the same rows")
        turns: dict[str, Turn] = {
            READ_ALL: lambda side, _: side.read(TOPIC, ALL, expected),
            READ_TWO: lambda side, _: side.read(TOPIC, TWO, expected),
            WRITE: lambda side, turn: side.write(expected, is_read_back=turn == 0),
        }
        return {
            name: compared(name, _rounds(name, sides, work, args.rounds))
            for name, work in turns.items()
            if name in names
        }


def _rounds(name: str, sides: Sequence[Side], work: Turn, rounds: int) -> list[Round]:
    """Measure `rounds` rounds, each side first in every other one, after a round to warm up."""
    measured: list[Round] = []
    for turn in range(rounds + 1):
        found: dict[str, Measured] = {}
        for side in sides if turn % 2 else sides[::-1]:
            found[side.name] = work(side, turn)
        if turn:
            measured.append(found)
        when = f"round {turn}" if turn else "to warm up"
        report_line(
            f"{name}, {when}: {', '.join(f'{side} {each}' for side, each in found.items())}"
        )
    return measured


@contextlib.contextmanager
def _sides(
    args: argparse.Namespace,
    folder: Path,
    brokers: Brokers,
    registry: RunningRegistry,
    schema_id: int,
) -> Iterator[Sequence[Side]]:
    """Run both sides within the block, ours first, with the rows in a topic of each."""
    args.folder.mkdir(parents=True, exist_ok=True)
    jars = fetch_jars(args.folder, CONNECTOR) + fetch_jars(args.folder, SPARK_AVRO)
    kafka = fetch_jars(args.folder, KAFKA)
    python = make_environment(args.folder)
    with contextlib.ExitStack() as stack:
        report_line("starting Apache Kafka")
        theirs = stack.enter_context(their_brokers(folder, kafka))
        # Our Spark asks the registry, whose time counts with that of the brokers.
        ours = Brokers(brokers.bootstrap_servers, [*brokers.pids, registry.pid])
        sides = []
        for name, each, own in ((OURS, ours, []), (THEIRS, theirs, jars)):
            fill(each.bootstrap_servers, TOPIC, schema_id, args.rows)
            report_line(f"filled topic '{TOPIC}' of {name}")
            running = spark_of(name, each, python, _WORKER, args, own)
            sides.append(Side(name, each, stack.enter_context(running), registry, schema_id))
        yield sides
