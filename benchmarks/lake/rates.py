"""How fast a full topic becomes a table, and what that costs.

The time begins when the table is made, so that the start of the process does not count, and ends
with the last row. What no writer of such files can be below is the encoding: Arrow writes the rows
of the table once more, by the same options, into memory.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.lake.lakes import Lakes, has_table, rows_in, wait_for
from benchmarks.support.rounds import Result, alone, beside, cpu_seconds
from benchmarks.typed.topics import fill_opaque, fill_typed
from storage_engine.tools.table import report_line

TYPED, OPAQUE = "typed", "opaque"
VALUE_BYTES = 100

_FLOOR_ROWS = 500_000
_GROUP_ROWS = 50_000
_PER_MILLION = 1_000_000


class Round(NamedTuple):
    rate: float
    """Rows a second."""
    lake_s: float
    """Processor time of the instance for a million rows."""
    brokers_s: float


def fill(servers: str, name: str, topic: str, rows: int) -> None:
    """Create a topic of this kind, and fill it."""
    report_line(f"{name}: {rows} rows are written")
    if name == TYPED:
        fill_typed(servers, topic, rows)
    else:
        fill_opaque(servers, topic, rows, VALUE_BYTES)


def rates(lakes: Lakes, name: str, rows: int, rounds: int) -> Iterator[Result]:
    """Give the figures of one kind of topic."""
    topic = f"lake-{name}"
    fill(lakes.brokers.bootstrap_servers, name, topic, rows)
    lakes.have_tables(topic)
    places = [lakes.folder / f"{topic}-{number}" / topic for number in range(rounds)]
    found = [round_of(lakes, place, rows) for place in places]
    lakes.forget(topic)
    floor_s = encoding_s(places[-1])
    yield alone(f"{name}: rows/s, one core", max(each.rate for each in found))
    yield beside(
        f"{name}: lake, processor s a million rows (limit: Arrow's encoding)",
        min(each.lake_s for each in found),
        floor_s,
    )
    spent_s = min(each.brokers_s for each in found)
    yield alone(f"{name}: brokers, processor s a million rows", spent_s)


def round_of(lakes: Lakes, place: Path, rows: int) -> Round:
    """Have an instance on one core write the topic into a table at this place."""
    brokers = lakes.brokers.pids
    with lakes.running(place.parent, cores=1) as pid:
        wait_for(lambda: has_table(place), "a table", pause_s=0.01)
        before, brokers_before = seconds_of([pid]), seconds_of(brokers)
        begun = time.monotonic()
        wait_for(lambda: rows_in(place) >= rows, f"{rows} rows")
        return Round(
            rate=rows / (time.monotonic() - begun),
            lake_s=(seconds_of([pid]) - before) / rows * _PER_MILLION,
            brokers_s=(seconds_of(brokers) - brokers_before) / rows * _PER_MILLION,
        )


def encoding_s(place: Path) -> float:
    """The processor time for which Arrow encodes a million rows of the table as they are in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from headrace_lake.delta.encodings import writer_options

    rows = DeltaTable(str(place)).to_pyarrow_dataset().head(_FLOOR_ROWS, use_threads=False)

    options = writer_options(rows.schema)._asdict()

    def encode() -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, rows.schema, **options) as writer:
            for first in range(0, rows.num_rows, _GROUP_ROWS):
                writer.write_table(rows.slice(first, _GROUP_ROWS))

    count: int = rows.num_rows
    return min(cpu_seconds(encode) for _ in range(3)) / count * _PER_MILLION
