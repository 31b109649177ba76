"""`headrace bench spark-read` measures both sources in one run and leaves nothing behind."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TIMEOUT_S = 300
SMALL = [
    "--records",
    "20000",
    "--rounds",
    "1",
    "--triggers",
    "2",
    "--trigger-rows",
    "100",
    "--json",
]


def test_the_benchmark_prints_both_rates_and_their_ratio():
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", "spark-read", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    batch, micro_batch = json.loads(done.stdout)
    assert batch["measure"] == "batch read, records/s"
    assert micro_batch["measure"] == "micro-batch of 100 records, ms"
    for each in (batch, micro_batch):
        assert each["headrace"] > 0
        assert each["in_memory"] > 0
        assert each["ratio"] == pytest.approx(each["headrace"] / each["in_memory"], abs=0.02)
