"""What a broker without the settings that ask for it has not loaded: it would take memory in every
broker. The process is one of its own, which loads what `headrace broker` loads."""

import subprocess
import sys

import pytest

UNUSED = {
    "certificates, passwords and tokens": {"cryptography", "scramp", "jwt"},
    "the metrics' page": {"prometheus_client", "h11", "http"},
    "records of typed topics, and what compresses": {
        "pyarrow", "numpy", "pandas", "cramjam", "snappy", "lz4", "zstandard",
    },
    "clients, the console and Spark": {"kafka", "storage_engine.client", "pyspark"},
    "hints to names that are wrong": {"difflib"},
    "other processes": {"multiprocessing", "concurrent.futures.process"},
}  # fmt: skip

PROGRAM = """
import sys
from storage_engine.tools import cli
import storage_engine.tools.commands.broker, storage_engine.broker.main
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("use", UNUSED)
def test_a_plain_broker_has_not_loaded(loaded: set[str], use: str) -> None:
    assert "storage_engine.broker.wiring.build" in loaded
    assert not UNUSED[use] & loaded
