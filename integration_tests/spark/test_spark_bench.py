"""`headrace bench spark-read`, `spark-write` and `spark-phases` measure all sides in one run. They
do so in the session of the tests: a Spark of their own would take longer to start than they take.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

Bench = Callable[..., list[dict[str, Any]]]
SMALL = ["--rounds=1", "--warm-up-rounds=0", "--warm-up-triggers=1", "--json"]
SMALL += ["--triggers=1", "--trigger-rows=100"]


@pytest.fixture
def bench(spark, capsys) -> Bench:
    def run(name: str, *arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["bench", name, *SMALL, *arguments]) == 0
        results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        assert spark.range(1).count() == 1, "the session goes on"
        return results

    return run


@in_full
def test_the_benchmark_of_reads_prints_both_rates_and_their_ratio(bench):
    results = bench("spark-read", "--records", "20000", "--large-trigger-rows", "10000")
    assert [(each["measure"], each["target"]) for each in results] == [
        ("batch read, records/s", ">= 0.6"),
        ("micro-batches of 10000 records, records/s", ">= 0.5"),
        ("micro-batch of 100 records, ms", "<= 1.3"),
        ("processor time of a task of 1000 records, ms", "<= 1.0"),
    ]
    for each in results:
        assert each["headrace"] > 0
        assert each["in_memory"] > 0
        assert each["ratio"] == pytest.approx(each["headrace"] / each["in_memory"], abs=0.02)


@in_full
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


@in_full
def test_the_benchmark_of_phases_prints_those_of_each_query(bench):
    results = bench("spark-phases")
    assert [each["query"] for each in results] == [
        "headrace to noop",
        "in memory to noop",
        "headrace to headrace",
        "in memory to headrace",
        "in memory to in memory",
    ]
    for each in results:
        assert each["whole"] >= each["add_batch"] + each["query_planning"] > 0
