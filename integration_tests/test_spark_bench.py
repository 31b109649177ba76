"""`headrace bench spark-read` and `spark-write` measure both sides in one run."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration_tests.spark_support import spark
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.cli import main

pytestmark = pytest.mark.slow

__all__ = ["spark"]

SMALL = ["--rounds=1", "--warm-up-rounds=0", "--warm-up-triggers=1", "--json"]
SMALL += ["--triggers=1", "--trigger-rows=100"]


@pytest.fixture
def bench(spark, monkeypatch, capsys):
    """Runs a benchmark, which finds the session of all tests, and leaves it to them."""
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)

    def run(name: str, *arguments: str) -> list[dict[str, Any]]:
        assert main(["bench", name, *SMALL, *arguments]) == 0
        results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return results

    return run


@pytest.mark.skipif(not ALL_FAULTS, reason="beside writes: with HEADRACE_FAULTS=full")
def test_the_benchmark_of_reads_prints_both_rates_and_their_ratio(bench):
    results = bench("spark-read", "--records", "20000", "--large-trigger-rows", "10000")
    assert [(each["measure"], each["target"]) for each in results] == [
        ("batch read, records/s", ">= 0.6"),
        ("micro-batches of 10000 records, records/s", ">= 0.5"),
        ("micro-batch of 100 records, ms", "<= 1.3"),
    ]
    for each in results:
        assert each["headrace"] > 0
        assert each["in_memory"] > 0
        assert each["ratio"] == pytest.approx(each["headrace"] / each["in_memory"], abs=0.02)


def test_the_benchmark_of_writes_compares_exactly_once_with_both_others(bench):
    large = ("--large-triggers", "1", "--large-trigger-rows", "500")
    results = bench("spark-write", "--records", "20000", *large)
    assert [(each["measure"], each["beside"]) for each in results] == [
        ("batch write, records/s", "in memory"),
        ("micro-batches of 500 rows, records/s", "in memory"),
        ("micro-batches of 500 rows, records/s", "at least once"),
        ("micro-batches of 100 rows, ms", "at least once"),
    ]
    *rates, overhead = results
    for each in rates:
        ratio = each["exactly_once"] / each["other"]
        assert each["compared"] == pytest.approx(ratio, rel=0.02, abs=0.01)
        assert each["met"] == (each["compared"] >= float(each["target"].removeprefix(">= ")))
    more_ms = overhead["exactly_once"] - overhead["other"]
    assert overhead["compared"] == pytest.approx(more_ms, abs=1.5)
