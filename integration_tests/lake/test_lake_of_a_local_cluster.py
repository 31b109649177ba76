"""`headrace up --lake`, `headrace lake status` and the metrics, as the document tells users."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from integration_tests.lake.lakes import rows_in, wait_for_rows
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import cluster_json, fail, processes_of, succeed

TRIPS = b'{"id": 1, "city": "Oslo", "fare": 12.5}\n{"id": 2, "city": "Oslo", "fare": 7.5}\n'
CONFIG = (
    *("--config", "headrace.table.format=delta"),
    *("--config", "headrace.table.commit.interval.ms=200"),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("up")
    arguments = ("--brokers", 1, "--port", 0, "--no-console", "--detach")
    told = succeed("up", "--dir", folder, *arguments, "--lake", folder / "lake")
    try:
        assert f"lake: {folder / 'lake'}" in told
        yield folder
    finally:
        succeed("down", "--dir", folder)
        assert processes_of(folder) == []


def brokers(directory: Path) -> tuple[str, str]:
    return "--bootstrap-server", cluster_json(directory)["bootstrap_servers"]


def status(directory: Path, topic: str) -> dict[str, Any]:
    told = succeed("lake", "status", "--cluster", directory, "--json")
    (found,) = [each for each in json.loads(told) if each["topic"] == topic]
    document: dict[str, Any] = found
    return document


def metrics(directory: Path) -> str:
    with urllib.request.urlopen(f"{cluster_json(directory)['lake']['url']}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def test_the_first_table_is_read_by_others_and_told_of(directory):
    schema = ("--schema", "id BIGINT NOT NULL, city STRING, fare DOUBLE")
    succeed("topics", "create", "trips", *brokers(directory), *schema, *CONFIG)
    assert status(directory, "trips")["state"] == "empty"
    succeed("produce", "trips", *brokers(directory), stdin=TRIPS)
    place = directory / "lake" / "trips"
    wait_for_rows(place, 2)
    rows = DeltaTable(str(place)).to_pyarrow_dataset()
    assert duckdb.from_arrow(rows).aggregate("sum(fare)").fetchall() == [(20.0,)]
    assert pl.scan_delta(str(place)).collect()["city"].to_list() == ["Oslo", "Oslo"]
    assert DeltaTable(str(place)).to_pandas()["fare"].sum() == 20.0
    found = status(directory, "trips")
    assert (found["state"], found["lag_records"], found["rows"]) == ("current", 0, 2)
    assert found["files"] >= 1
    assert "trips" in succeed("lake", "status", "--cluster", directory)
    told = metrics(directory)
    assert 'headrace_lake_rows_total{topic="trips"} 2.0' in told
    assert 'headrace_lake_stopped{topic="trips"} 0.0' in told


def test_the_group_tells_the_lag_of_the_lake(directory):
    succeed("topics", "create", "told", *brokers(directory), "--partitions", 1, *CONFIG)
    succeed("produce", "told", *brokers(directory), stdin=b"a\nb\nc\n")
    wait_for_rows(directory / "lake" / "told", 3)

    def told() -> bool:
        text = succeed("groups", "describe", "headrace-lake", *brokers(directory), "--json")
        rows = json.loads(text)["partitions"]
        return any((row["topic"], row.get("lag")) == ("told", 0) for row in rows)

    wait_until(told, "the group has the table's offset")


def test_the_lake_comes_back_with_its_cluster(directory):
    succeed("down", "--dir", directory)
    assert cluster_json(directory)["lake"]["pid"] is None
    succeed("up", "--dir", directory, "--no-console", "--detach")
    assert cluster_json(directory)["lake"]["pid"] is not None
    before = rows_in(directory / "lake" / "trips")
    succeed("produce", "trips", *brokers(directory), stdin=b'{"id": 3}\n')
    wait_for_rows(directory / "lake" / "trips", before + 1)
    again = ("up", "--dir", directory, "--no-console", "--detach", "--lake", "elsewhere")
    assert "stop the cluster first" in fail(*again)
