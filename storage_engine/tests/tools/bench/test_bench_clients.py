"""The comparison of other people's clients: the peer that acknowledges, what rounds make of rows,
and errors. Nothing is downloaded here, and no cluster is started."""

import socket
import struct

import pytest

from benchmarks.beside_kafka.jars import KAFKA, KAFKA_TOOLS, ivy_file, read_pinned
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.clients import librdkafka
from benchmarks.clients.comparison import running_acknowledger
from benchmarks.clients.loads import GROUPS, ROWS, loads_of
from benchmarks.clients.results import CEILING, COLUMNS, cells, result_of
from benchmarks.support.random_values import random_values
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tools.cli import main
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import format_table


def turns_of(name: str, ours: list[float], theirs: list[float], alone: float | None = None):
    turns = []
    for mine, its in zip(ours, theirs, strict=True):
        turn = {OURS: {name: mine}, THEIRS: {name: its}}
        turns.append(turn if alone is None else {**turn, CEILING: {name: alone}})
    return turns


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)


def test_a_latency_meets_its_goal_when_the_median_ratio_is_at_most_seven_tenths():
    turns = turns_of("requests-100-ack-p50", [2.0, 3.0, 9.0], [4.0, 5.0, 10.0])
    result = result_of(row_of("requests-100-ack-p50"), turns)
    assert [result.headrace, result.kafka] == [3, 5]
    assert [result.ratio, result.goal, result.met] == [0.6, "<= 0.7", True]
    assert result.ratio_spread == (0.5, 0.9)
    assert result.client_alone is None


def test_a_rate_stands_beside_that_of_the_client_alone():
    name = "librdkafka-100-defaults"
    result = result_of(row_of(name), turns_of(name, [300e3], [200e3], 400e3))
    assert [result.ratio, result.met, result.client_alone] == [1.5, False, 400_000]
    assert result.rounds == [{OURS: 300_000, THEIRS: 200_000, CEILING: 400_000}]


def test_every_row_has_a_name_of_its_own_and_a_line_in_the_table():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.group for row in ROWS} == set(GROUPS)
    results = [result_of(row, turns_of(row.name, [1.0], [2.0])) for row in ROWS]
    lines = format_table(COLUMNS, [cells(each) for each in results]).splitlines()
    assert len(lines) == 1 + len(ROWS)


def test_the_tools_come_alone_and_run_with_the_jars_of_kafka():
    ((_, name, version),) = KAFKA_TOOLS.dependencies
    assert list(read_pinned(KAFKA_TOOLS.pinned)) == [f"{name}-{version}.jar"]
    assert f"kafka-clients-{version}.jar" in read_pinned(KAFKA.pinned)
    assert 'transitive="false"' in ivy_file(KAFKA_TOOLS)
    assert "transitive" not in ivy_file(KAFKA)


@pytest.fixture(scope="module")
def acknowledger(tmp_path_factory):
    with running_acknowledger(tmp_path_factory.mktemp("acknowledger")) as servers:
        yield servers


def test_the_acknowledger_gives_each_batch_the_offsets_after_those_before_it(acknowledger):
    told: list[tuple[int, int]] = []
    with (
        Cluster(acknowledger) as cluster,
        BatchWriter(
            cluster, on_delivered=lambda _, base, records: told.append((base, records))
        ) as writer,
    ):
        for _ in range(3):
            for batch in encode_batches(random_values(50, 100, seed=0), batch_bytes=1 << 20):
                writer.append(TopicPartition("t", 4), batch)
    assert sorted(told) == [(0, 50), (50, 50), (100, 50)]


def test_librdkafka_alone_has_latencies_too(acknowledger):
    figures = librdkafka.acknowledged_alone(acknowledger, "t", 100, 1)
    assert list(figures) == ["requests-100-ack-p50", "requests-100-ack-p99"]
    assert all(figure > 0 for figure in figures.values())


@pytest.mark.parametrize("load", loads_of("librdkafka", 2_000), ids=lambda load: load.name)
def test_librdkafka_produces_to_the_acknowledger(acknowledger, load):
    pytest.importorskip("confluent_kafka")
    assert librdkafka.produce(acknowledger, "t", load) > 0


def test_the_acknowledger_ends_a_connection_that_asks_for_more(acknowledger):
    host, _, port = acknowledger.partition(",")[0].rpartition(":")
    fetch = struct.pack(">hhihi", 1, 11, 7, -1, -1)
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(fetch)) + fetch)
        assert connection.recv(1) == b""


def test_records_that_nobody_acknowledges_are_told(monkeypatch):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(librdkafka, "_FLUSH_S", 0.2)
    (load, *_) = loads_of("librdkafka", 10)
    with pytest.raises(CommandError, match="0 of 10 records were acknowledged"):
        librdkafka.produce("127.0.0.1:1", "t", load)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "5"], "--rows is 5"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_before_anything_starts(capsys, arguments, problem):
    assert main(["bench", "clients", *arguments]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert problem in last
