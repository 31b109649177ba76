"""The most resident memory of an instance."""

import os
from pathlib import Path

from benchmarks.lake.lakes import Lakes, peak_kib, rows_in, wait_for
from benchmarks.lake.rates import VALUE_BYTES
from benchmarks.support.rounds import Goal, Result, alone
from benchmarks.typed.topics import fill_opaque
from storage_engine.tools.table import report_line

GOAL = Goal(most=512.0)
TOPICS = 100
LARGE_BYTES = 1_000_000


def many_topics(lakes: Lakes, rows: int) -> Result:
    """An instance writes many topics, of which each has so many rows waiting."""
    names = [f"lake-memory-{number:03}" for number in range(TOPICS)]
    report_line(f"memory: {TOPICS} topics get {rows} rows each")
    peak_mib = _peak_mib(lakes, names, rows, VALUE_BYTES)
    return alone(f"resident memory with {TOPICS} topics, MiB", peak_mib, goal=GOAL)


def large_rows(lakes: Lakes, rows: int) -> Result:
    """An instance writes one topic with values of a megabyte."""
    report_line(f"memory: a topic gets {rows} rows of {LARGE_BYTES} bytes")
    peak_mib = _peak_mib(lakes, ["lake-large"], rows, LARGE_BYTES)
    return alone("resident memory with values of 1 MB, MiB", peak_mib, goal=GOAL)


def _peak_mib(lakes: Lakes, topics: list[str], rows: int, value_bytes: int) -> float:
    for topic in topics:
        fill_opaque(lakes.brokers.bootstrap_servers, topic, rows, value_bytes)
    lakes.have_tables(*topics)
    root: Path = lakes.folder / topics[0]
    most_kib = 0
    with lakes.running(root, cores=os.cpu_count() or 1) as pid:

        def are_written() -> bool:
            nonlocal most_kib
            most_kib = peak_kib(pid)
            return all(rows_in(root / topic) >= rows for topic in topics)

        wait_for(are_written, "all topics", pause_s=1.0)
    return most_kib / 1024
