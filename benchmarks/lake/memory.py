"""The most resident memory of an instance."""

import os
from pathlib import Path

from benchmarks.lake.lakes import Lakes, peak_kib, rows_in, wait_for
from benchmarks.lake.rates import VALUE_BYTES
from benchmarks.support.random_values import random_values
from benchmarks.support.rounds import Goal, Result, alone
from benchmarks.typed.topics import PARTITIONS, fill_opaque
from storage_engine.client import Admin, NewTopic, Producer
from storage_engine.tools.table import report_line

GOAL = Goal(most=512.0)
TOPICS = 100
LARGE_BYTES = 1_000_000

_LARGE = "lake-large"


def many_topics(lakes: Lakes, rows: int) -> Result:
    """An instance writes many topics, of which each has so many rows waiting."""
    names = [f"lake-memory-{number:03}" for number in range(TOPICS)]
    report_line(f"memory: {TOPICS} topics get {rows} rows each")
    for topic in names:
        fill_opaque(lakes.brokers.bootstrap_servers, topic, rows, VALUE_BYTES)
    peak_mib = _peak_mib(lakes, names, rows)
    return alone(f"resident memory with {TOPICS} topics, MiB", peak_mib, goal=GOAL)


def large_rows(lakes: Lakes, rows: int) -> Result:
    """An instance writes one topic with values of a megabyte."""
    report_line(f"memory: a topic gets {rows} rows of {LARGE_BYTES} bytes")
    servers = {"bootstrap.servers": lakes.brokers.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name=_LARGE, partitions=PARTITIONS)])
    values = random_values(PARTITIONS, LARGE_BYTES, seed=0).to_pylist()
    with Producer(servers) as producer:
        for number in range(rows):
            producer.send(_LARGE, values[number % PARTITIONS], partition=number % PARTITIONS)
    peak_mib = _peak_mib(lakes, [_LARGE], rows)
    return alone("resident memory with values of 1 MB, MiB", peak_mib, goal=GOAL)


def _peak_mib(lakes: Lakes, topics: list[str], rows: int) -> float:
    lakes.have_tables(*topics)
    root: Path = lakes.folder / topics[0]
    most_kib = 0
    with lakes.running(root, cores=os.cpu_count() or 1) as pid:

        def are_written() -> bool:
            nonlocal most_kib
            most_kib = peak_kib(pid)
            return all(rows_in(root / topic) >= rows for topic in topics)

        wait_for(are_written, "all topics", pause_s=1.0)
    lakes.forget(*topics)
    return most_kib / 1024
