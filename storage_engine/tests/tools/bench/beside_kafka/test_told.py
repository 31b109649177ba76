"""A process that gets jobs line by line: its answers, its errors, its silence and its end."""

import contextlib
import subprocess
import sys

import pytest

from benchmarks.beside_kafka.told import Told, ToldProcess
from storage_engine.tools.errors import CommandError

PROGRAM = """
import json, sys, time
for line in sys.stdin:
    job = json.loads(line)
    if job["kind"] == "die":
        print("ValueError: out of memory", file=sys.stderr)
        sys.exit(3)
    if job["kind"] == "sleep":
        time.sleep(60)
    answer = {"error": "no such topic"} if job["kind"] == "fail" else {"rows": job["rows"]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def worker(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    with (
        contextlib.suppress(BrokenPipeError),  # what was written to one that has ended
        log.open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        yield ToldProcess("the worker", process, log, 20)
        process.kill()


def test_a_job_is_answered_and_one_that_fails_does_not_end_the_process(worker):
    with pytest.raises(CommandError, match="a job of the worker failed: no such topic"):
        worker.do(Told(kind="fail", rows=1))
    assert worker.do(Told(kind="read", rows=7)) == {"rows": 7}


def test_a_process_that_ends_is_told_by_its_log_also_at_the_next_job(worker):
    for _ in range(2):
        with pytest.raises(CommandError, match="out of memory"):
            worker.do(Told(kind="die", rows=0))


def test_a_process_that_does_not_answer_is_named_with_its_log(worker):
    worker._job_s = 0.2
    with pytest.raises(CommandError, match=r"the worker does not answer for 0 s, see .*log"):
        worker.do(Told(kind="sleep", rows=0))
