"""Processes that tests have started and not stopped: found by the folder of this run, which stands
in their arguments, and ended with the process of the tests, however that ends.

`LocalCluster.running` has a guard of its own. This one is for what tests start by themselves.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from integration_tests.support.command_line import processes_of

END_TIMEOUT_S = 30
_SPARK = "org.apache.spark.deploy.SparkSubmit"

_GUARD = """
import os, signal, sys, time
folder = os.fsencode(sys.argv[1])
os.read(0, 1)
# Those with a guard of their own stop in order meanwhile.
for pause_s in (float(sys.argv[2]), 1):
    time.sleep(pause_s)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                arguments = file.read()
            if folder in arguments and b"--dir" not in arguments and int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
"""


def check_nothing_is_left(folder: Path, *, timeout_s: float = END_TIMEOUT_S) -> None:
    """AssertionError that names the processes that do not end. Spark's JVM ends with its Python.
    This process and who started it may have been told the folder: `--basetemp`."""
    until_s = time.monotonic() + timeout_s
    us = (os.getpid(), os.getppid())
    while left := [
        arguments
        for pid in processes_of(folder)
        if pid not in us and _is_ours(arguments := _arguments(pid))
    ]:
        assert time.monotonic() < until_s, f"left behind by tests: {left}"
        time.sleep(0.1)


def _is_ours(arguments: list[str]) -> bool:
    return bool(arguments) and _SPARK not in arguments and _GUARD not in arguments


def _arguments(pid: int) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(part) for part in raw.split(b"\0")]


@contextlib.contextmanager
def ended_with_us(folder: Path, *, patience_s: float = 10) -> Iterator[None]:
    """Kills the processes with that folder in their arguments when this process has ended, unless
    the block was left in order."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, f"{folder}/", str(patience_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield
    guard.kill()
    guard.communicate()
