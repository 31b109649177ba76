"""Child processes that outlive their parent: starts one detached, recognises it by its arguments,
and stops it.

A pid alone proves nothing, since the kernel gives the numbers of dead processes to new ones. A
process is ours when its command line holds our mark: some consecutive arguments, among them an
absolute path that is ours alone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from storage_engine.zookeeper.embedded import has_ended
from storage_engine.zookeeper.session_credentials import for_owner

POLL_S = 0.02
KILL_TIMEOUT_S = 10.0
"""How long the kernel may take to end a process after SIGKILL; more means a stuck disk."""

_PROC = Path("/proc")


class _Child(NamedTuple):
    process: "subprocess.Popen[bytes]"
    arguments: list[str]


_children: dict[int, _Child] = {}
"""Children of this process by pid. They are kept: a `Popen` that is dropped while its child runs
warns, and reaping (without which a dead child stays in the process table) needs it.
"""


class StopOutcome(Enum):
    """How a process ended."""

    NOT_RUNNING = "was not running"
    STOPPED = "stopped"
    KILLED = "killed"


def spawn_detached(
    command: Sequence[str],
    *,
    cwd: Path,
    output: Path,
    environment: dict[str, str] | None = None,
    start: type["subprocess.Popen[bytes]"] = subprocess.Popen,
) -> int:
    """Start a process in a session of its own, so that no Ctrl-C for us reaches it; returns its
    pid. Tests have another way to `start` one.

    It gets none of our descriptors: stdin is /dev/null, stdout and stderr are `output`, emptied
    first, which only its owner may read.
    """
    with open(output, "wb", opener=for_owner) as sink:
        child = start(
            list(command),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            close_fds=True,
        )
    _children[child.pid] = _Child(child, list(command))
    return child.pid


def exit_status(pid: int) -> int | None:
    """How a child of ours ended (a negative number is a signal); None while it runs or when it
    isn't ours.
    """
    child = _children.get(pid)
    return None if child is None else child.process.poll()


def command_line(pid: int) -> list[str] | None:
    """The arguments of a running process; None when there is none, or it has ended and waits to be
    reaped.
    """
    exit_status(pid)
    if not _PROC.joinpath("self").exists():
        return _command_line_from_ps(pid)
    try:
        raw = _PROC.joinpath(str(pid), "cmdline").read_bytes()
    except OSError:
        return None
    return [os.fsdecode(part) for part in raw.split(b"\0")[:-1]] or None


def is_running(pid: int | None, mark: Sequence[str]) -> bool:
    """Whether process `pid` is alive and bears our mark."""
    if pid is None:
        return False
    child = _children.get(pid)
    if child is not None and child.process.poll() is None:
        # Our own child runs until it can be reaped, also while it is dying without a command line;
        # and until then nobody else gets its pid.
        return _bears(child.arguments, mark)
    arguments = command_line(pid)
    return arguments is not None and _bears(arguments, mark)


def find_process(mark: Sequence[str]) -> int | None:
    """The pid of a running process with our mark, if there is one and /proc is readable."""
    try:
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    return next((pid for pid in pids if is_running(pid, mark)), None)


def stop_process(pid: int | None, mark: Sequence[str], *, timeout_s: float) -> StopOutcome:
    """SIGTERM, and SIGKILL after `timeout_s`; returns when the process is gone.

    TimeoutError if it never goes.
    """
    if pid is None or not is_running(pid, mark):
        return StopOutcome.NOT_RUNNING
    _signal(pid, signal.SIGTERM)
    if _wait_until_gone(pid, mark, timeout_s):
        return StopOutcome.STOPPED
    kill_process(pid, mark)
    return StopOutcome.KILLED


def kill_process(pid: int | None, mark: Sequence[str]) -> None:
    """SIGKILL; returns when the process is gone. TimeoutError if it never goes."""
    if pid is None or not is_running(pid, mark):
        return
    _signal(pid, signal.SIGKILL)
    if not _wait_until_gone(pid, mark, KILL_TIMEOUT_S):
        raise TimeoutError(f"process {pid} still runs {KILL_TIMEOUT_S:.0f} s after SIGKILL")


def _wait_until_gone(pid: int, mark: Sequence[str], timeout_s: float) -> bool:
    """Gone for good: its port can be taken and its folder locked again."""
    deadline = time.monotonic() + timeout_s
    while is_running(pid, mark) or _is_ending(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_ending(pid: int) -> bool:
    """Whether the process has no command line any more but has not ended: it may still hold its
    port."""
    return _PROC.joinpath("self").exists() and command_line(pid) is None and not has_ended(pid)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _bears(arguments: Sequence[str], mark: Sequence[str]) -> bool:
    size = len(mark)
    return any(
        list(arguments[i : i + size]) == list(mark) for i in range(len(arguments) - size + 1)
    )


def _command_line_from_ps(pid: int) -> list[str] | None:
    """ps separates arguments by blanks, so a process whose paths have blanks is not recognized."""
    answer = subprocess.run(
        ["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    fields = answer.stdout.split()
    return fields[1:] if fields and not fields[0].startswith("Z") else None
