"""Processes that end with this one, however it ends.

Rule: each runs in a session of its own, so that a Ctrl-C reaches only this process, which kills all
of the session at the end, since nobody needs its state. If this process is killed, the kernel kills
the first of the session, and the others end with it. To be started from the main thread.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.signals import signals_held
from storage_engine.zookeeper.embedded import has_ended

_PROC = Path("/proc")
_STOP_S = 15
_POLL_S = 0.02
_TAIL_BYTES = 8192

_TETHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit("its parent has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks the kernel to kill it with its parent, and then becomes the program to start."""


@contextlib.contextmanager
def tethered(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    talks: bool = False,
) -> Iterator["subprocess.Popen[str]"]:
    """Run a process within the block, in `folder`; its outputs go to `log`, but stdout to a pipe if
    it `talks`."""
    tether = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *command]
    pipe = subprocess.PIPE if talks else subprocess.DEVNULL
    with log.open("wb") as sink:
        process = subprocess.Popen(
            tether,
            stdin=pipe,
            stdout=pipe if talks else sink,
            stderr=sink,
            cwd=folder,
            env=None if environment is None else dict(environment),
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with signals_held():
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """Kill the process's session, and return when none of it holds a port or a file any more."""
    deadline = time.monotonic() + _STOP_S
    while left := _session(process.pid):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        if time.monotonic() > deadline:
            raise CommandError(f"process {left[0]} does not end, not even killed")
        time.sleep(_POLL_S)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _session(leader: int) -> list[int]:
    """Return the session's processes that have not ended."""
    found = []
    for path in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            if int(fields[3]) == leader and not has_ended(pid):
                found.append(pid)
    return found


def check_runs(process: "subprocess.Popen[str]", what: str, log: Path) -> None:
    """CommandError with the last line of its log if the process has ended."""
    status = process.poll()
    if status is not None:
        raise CommandError(f"{what} ended (status {status}): {last_line(log)}")


def last_line(log: Path) -> str:
    """Return the last line in a process's log, or a text in its place."""
    data = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
    lines = [line.strip() for line in data.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
