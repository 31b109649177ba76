"""The comparison of typed topics: its rows, what it makes of its rounds, its link, and its errors.
Nothing is downloaded here, and no broker runs."""

import json
import os
import socket
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.beside_kafka.jars import ivy_file, read_pinned
from benchmarks.beside_kafka.processor_time import seconds_of
from benchmarks.support.brokers import HOST
from benchmarks.typed.columns import (
    ALL,
    JSON_BYTES,
    PIECE_ROWS,
    SCHEMA,
    TWO,
    ddl,
    made_of,
    make_rows,
    share_where,
)
from benchmarks.typed.fluss import FLUSS, FLUSS_VERSION
from benchmarks.typed.link import Link
from benchmarks.typed.rows import COLUMNS, ROWS, Measured, cells, result_of, stopped
from storage_engine.core.typed.schema_text import parse_schema
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.core.typed.where import parse_where
from storage_engine.protocol.typed.arrow_types import arrow_schema
from storage_engine.tools.cli import main
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.tools.table import format_table

LINK_BITS = 40_000_000


def measured(rate: float, *, brokers_s: float = 1.0, reader_s: float = 1.0, sent: int = 1):
    return Measured(
        rows=1_000_000,
        time_s=1_000_000 / rate,
        brokers_s=brokers_s,
        reader_s=reader_s,
        sent=sent,
    )


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)


def rounds_of(name: str, pairs: list[tuple[Measured, Measured]]):
    row = row_of(name)
    return [{row.measured: one, row.beside: other} for one, other in pairs]


def test_a_row_follows_from_its_id_whoever_makes_it():
    pieces = pa.Table.from_batches(made_of(0, PIECE_ROWS + 10))
    alone = make_rows(PIECE_ROWS - 5, 10)
    assert pieces.slice(PIECE_ROWS - 5, 10).to_pylist() == alone.to_pylist()
    two = make_rows(PIECE_ROWS - 5, 10, TWO)
    assert two.to_pylist() == alone.select(TWO).to_pylist()


def test_the_rows_are_sound_and_have_the_types_of_the_schema():
    rows = make_rows(1_000_000, 1_000)
    rows.validate(full=True)
    columns = new_schema(parse_schema(ddl()), ()).latest.visible
    assert arrow_schema(columns).equals(SCHEMA)
    assert len(ALL) == 20
    assert 0 < rows.column("shared").null_count < 100


def test_rows_have_as_many_bytes_as_json_as_is_said():
    rows = make_rows(1_000_000, 1_000)
    texts = [json.dumps(row, separators=(",", ":")) for row in as_json(rows)]
    assert sum(map(len, texts)) / len(texts) == pytest.approx(JSON_BYTES, abs=1)


def as_json(rows: pa.RecordBatch):
    """As `to_json` of Spark has them: no nulls, decimals as numbers, milliseconds."""
    for row in rows.to_pylist():
        for name in ("at", "dropped_at"):
            row[name] = row[name].replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        for name in ("tip", "total"):
            row[name] = float(row[name])
        yield {name: value for name, value in row.items() if value is not None}


def test_the_filter_matches_its_share_of_the_rows():
    where, matching = share_where(0.01, 10_000)
    assert matching == 100
    version = new_schema(parse_schema(ddl()), ()).latest
    first, last = (each.values[0] for each in parse_where(where, version))
    times = make_rows(0, 10_000).column("at").cast(pa.int64())
    chosen = pc.and_(pc.greater_equal(times, first), pc.less(times, last))
    assert pc.sum(chosen).as_py() == matching


def test_a_rate_is_compared_round_by_round():
    pairs = [(measured(200_000), measured(20_000)), (measured(300_000), measured(20_000))]
    result = result_of(row_of("spark-two"), rounds_of("spark-two", [*pairs, pairs[0]]))
    assert [result.measured, result.beside] == [200_000, 20_000]
    assert [result.ratio, result.ratio_spread] == [10, (10, 15)]
    assert [result.goal, result.met] == [">= 10", True]


def test_bytes_and_the_brokers_time_are_compared_for_a_row():
    few = measured(1e6, brokers_s=0.1, reader_s=0.1, sent=18_000_000)
    all_ = measured(1e6, brokers_s=0.5, reader_s=0.5, sent=240_000_000)
    sent = result_of(row_of("sent"), rounds_of("sent", [(few, all_)]))
    assert [sent.measured, sent.beside, sent.ratio, sent.met] == [18, 240, 0.075, True]
    brokers = result_of(row_of("brokers"), rounds_of("brokers", [(few, all_)]))
    assert [brokers.measured, brokers.ratio, brokers.met] == [0.1, 0.2, True]
    assert brokers.cpu_ratio == 0.2


def test_a_row_that_can_not_be_measured_says_why_in_its_line():
    pair = [(measured(1e6), measured(2e6))]
    results = [result_of(row, rounds_of(row.name, pair)) for row in ROWS[:-1]]
    results.append(stopped(ROWS[-1], "not measured: no server"))
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert "not measured: no server" in lines[-1]
    assert lines[-1].split()[-1] == "-"


def test_the_link_carries_what_it_is_given_at_its_speed_and_counts_it(tmp_path):
    data = os.urandom(1 << 20)
    before = find_free_port(HOST, avoid=())
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=send_to_one, args=(server, data), daemon=True).start()
        with Link.running(tmp_path, {before: server.getsockname()[1]}, LINK_BITS) as link:
            started = time.perf_counter()
            with socket.create_connection((HOST, before)) as client:
                found = b"".join(iter(lambda: client.recv(1 << 16), b""))
            took_s = time.perf_counter() - started
            assert found == data
            assert link.sent() == len(data)
    assert took_s >= len(data) * 8 / LINK_BITS * 0.95


def send_to_one(server: socket.socket, data: bytes) -> None:
    with server.accept()[0] as connection:
        connection.sendall(data)


def test_processor_time_of_a_process_is_finer_than_ticks():
    before = seconds_of([os.getpid()])
    deadline = time.process_time() + 0.005
    while time.process_time() < deadline:
        pass
    assert 0.005 <= seconds_of([os.getpid()]) - before < 1


def test_what_is_asked_of_maven_is_pinned():
    pinned = read_pinned(FLUSS.pinned)
    assert f"fluss-server-{FLUSS_VERSION}.jar" in pinned
    assert f'name="fluss-server" rev="{FLUSS_VERSION}"' in ivy_file(FLUSS)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "5"], "--rows is 5"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
        (["--conf", "spark.ui.enabled"], "--conf 'spark.ui.enabled' is not of the form KEY=VALUE"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_before_anything_starts(capsys, arguments, problem):
    assert main(["bench", "typed", *arguments]) == 2
    assert problem in capsys.readouterr().err
