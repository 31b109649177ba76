"""`headrace bench spark-read` and `spark-write` measure both sides in one run."""

import json
import subprocess
import sys
from typing import Any

import pytest

from storage_engine.tests.sampling import ALL_FAULTS

pytestmark = pytest.mark.slow

TIMEOUT_S = 300
SMALL = ["--rounds=1", "--warm-up-rounds=0", "--warm-up-triggers=1", "--json"]
SMALL += ["--triggers=1", "--trigger-rows=100"]


def bench(name: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", name, *SMALL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


@pytest.mark.skipif(not ALL_FAULTS, reason="beside writes: with HEADRACE_FAULTS=full")
def test_the_benchmark_of_reads_prints_both_rates_and_their_ratio():
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


def test_the_benchmark_of_writes_compares_exactly_once_with_both_others():
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
