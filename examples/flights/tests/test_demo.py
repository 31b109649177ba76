"""The demo, shortened, as `make demo` runs it: real brokers, Spark, and two SIGKILLs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights import demo, job
from examples.flights.loader import DAY_MS
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.local.directory_lock import directory_lock

ROOT = Path(__file__).parents[3]


def processes_with(text):
    """Command lines of the processes that have `text` in theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def shown(output):
    """A relative path, as the default is one."""
    return os.path.relpath(output, ROOT)


def run_demo(output, *arguments):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "examples.flights.demo",
            f"--output={shown(output)}",
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )


@pytest.mark.parametrize("more", [(), ("--secure",)] if ALL_FAULTS else [()], ids=str)
def test_the_result_is_exact_though_a_broker_and_the_driver_die_and_nothing_stays_behind(
    tmp_path, more
):
    ended = run_demo(tmp_path, "--days=5", "--seconds=3", *more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "killed with SIGKILL" in ended.stdout
    assert "is back in sync with every partition" in ended.stdout
    assert "Spark's driver killed with SIGKILL, in micro-batch" in ended.stdout
    assert "the next driver runs the query" in ended.stdout
    log, as_json, results, table = ended.stdout.splitlines()[-4:]
    assert log.startswith("exact: 4,334 of 4,334 flights and 358 of 358 weather reports")
    assert log.endswith("doubled: 0")
    assert "4,334 rows in the log, and 1 that completes the last hours" in ended.stdout
    assert as_json.startswith("exact: 1,000 of 1,000 flights that a client of Kafka's read as JSON")
    assert results.startswith("exact: ")
    assert results.endswith("lost: 0, doubled: 0")
    assert table.startswith("exact: ")
    assert table.endswith("results that DuckDB read from their Delta table are those of the log")
    assert (tmp_path / "delays.png").exists()
    assert processes_with(str(tmp_path)) == []


def test_a_folder_in_use_by_another_demo_is_one_clear_line(tmp_path):
    with directory_lock(tmp_path):
        ended = run_demo(tmp_path)
    assert ended.returncode == 1
    assert f"another headrace command is running in '{shown(tmp_path)}'" in ended.stdout


def test_the_closing_row_is_later_than_the_stream_waits():
    days = int(job.LATENESS.removesuffix(" days"))
    assert days * DAY_MS < demo.CLOSING_MS
