"""The costs of typed batches of few rows, beside JSON in batches of as many records.

Rule: one partition, so that each call of `send_table` makes one batch; nothing merges batches
afterwards. Processor time is that of all three brokers, for one row.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.clusters import our_brokers
from benchmarks.beside_kafka.processor_time import check_proc, seconds_of
from benchmarks.beside_kafka.topics import REPLICAS
from benchmarks.support.brokers import Brokers
from benchmarks.support.random_values import random_values
from benchmarks.support.rounds import rounded, seconds
from benchmarks.typed.columns import ALL, JSON_BYTES, TWO, make_rows
from benchmarks.typed.reads import TableReader
from benchmarks.typed.rows import Measured
from benchmarks.typed.topics import create_typed, stored_bytes
from storage_engine.client import Producer
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.tools.table import report_line

ROWS_PER_BATCH = (1, 10, 100, 1_000)
_BATCHES = 2_000
"""The number of batches of each size, limited by the most rows."""
_MOST_ROWS = 200_000

COLUMNS = (
    "batches",
    "rows a batch",
    "bytes/row",
    "written, rows/s",
    "brokers, us/row",
    "read, rows/s",
    "brokers, us/row",
    "two columns, rows/s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The costs of one size of batches; medians over the rounds."""

    batches: str
    rows: int
    bytes_per_row: float
    write_rate: float
    write_us: float
    read_rate: float
    read_us: float
    two_rate: float | None


def measure(directory: Path | None, rounds: int) -> list[Cost]:
    """Return the costs of all sizes, typed ones first."""
    check_proc()
    with scratch(directory) as name:
        report_line("starting Headrace")
        with our_brokers(name) as brokers:
            found = []
            for is_typed in (True, False):
                for rows in ROWS_PER_BATCH:
                    cost = _cost_of(brokers, rows, rounds, is_typed=is_typed)
                    report_line(f"{cost.batches} batches of {rows:,}: {cost.bytes_per_row} B a row")
                    found.append(cost)
    return found


def _cost_of(brokers: Brokers, size: int, rounds: int, *, is_typed: bool) -> Cost:
    kind = "typed" if is_typed else "json"
    topic = f"{kind}-{size}"
    servers = brokers.bootstrap_servers
    rows = min(size * _BATCHES, _MOST_ROWS)
    if is_typed:
        create_typed(servers, topic, 1)
        table = pa.Table.from_batches([make_rows(0, rows)])
    else:
        with Cluster(servers) as cluster:
            create_topic(cluster, topic, 1, REPLICAS)
        table = pa.table({"value": random_values(rows, JSON_BYTES, seed=0)})
    before = seconds_of(brokers.pids)

    def write() -> None:
        with Producer({"bootstrap.servers": servers}) as producer:
            for place in range(0, rows, size):
                producer.send_table(topic, table.slice(place, size))
            producer.flush()

    write_s = seconds(write)
    write_cpu_s = seconds_of(brokers.pids) - before
    reader = TableReader(brokers, 1, rows)
    reads = _rounds(lambda: reader.read(topic, columns=ALL if is_typed else None), rounds)
    twos = _rounds(lambda: reader.read(topic, columns=TWO), rounds) if is_typed else None
    return Cost(
        batches=kind,
        rows=size,
        bytes_per_row=rounded(stored_bytes(servers, topic) / rows),
        write_rate=rounded(rows / write_s),
        write_us=rounded(write_cpu_s / rows * 1e6),
        read_rate=_median(reads, "rate"),
        read_us=_median(reads, "brokers"),
        two_rate=None if twos is None else _median(twos, "rate"),
    )


def _rounds(work: Callable[[], Measured], rounds: int) -> list[Measured]:
    """Return the results of `rounds` rounds, after one to warm up."""
    return [work() for _ in range(rounds + 1)][1:]


def _median(measured: list[Measured], measure: str) -> float:
    """Return the median figure; seconds for a million rows are microseconds for one."""
    return rounded(statistics.median(each.figure(measure) for each in measured))
