"""Processes that end with the one that started them."""

import os
import signal
import subprocess
import sys
import time

from benchmarks.beside_kafka.environment import ROOT
from storage_engine.zookeeper.embedded import has_ended


def test_what_was_started_is_killed_with_us(tmp_path):
    program = """
from pathlib import Path
from benchmarks.beside_kafka.tethered import tethered
with tethered(["/bin/sleep", "600"], log=Path("log"), folder=Path()) as process:
    print(process.pid, flush=True)
    process.wait()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as starter:
        assert starter.stdout is not None
        started = int(starter.stdout.readline())
        assert not has_ended(started)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not has_ended(started):
        assert time.monotonic() < deadline
        time.sleep(0.02)
