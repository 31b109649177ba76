"""A web server beside a local cluster, as a child process that `headrace up` starts."""

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_process import environment_of_child, last_line
from storage_engine.tools.local.cluster_plan import HOST
from storage_engine.tools.local.free_ports import find_free_port, is_port_free
from storage_engine.tools.local.processes import (
    exit_status,
    find_process,
    is_running,
    spawn_detached,
    stop_process,
)

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 8.0
_POLL_S = 0.1


def free_port(wanted: int) -> int:
    """The wanted port if it is free, else another one."""
    return wanted if is_port_free(HOST, wanted) else find_free_port(HOST)


class WebProcess:
    """One server of one folder, running or not."""

    def __init__(self, directory: Path, name: str, mark: Sequence[str]) -> None:
        """`mark`: the arguments by which its process is known."""
        self._directory = directory
        self._name = name
        self._mark = tuple(mark)

    def find(self, pid: int | None) -> int | None:
        """The pid on record, or that of one that was started since then by hand on the same
        folder; None when neither runs."""
        return pid if is_running(pid, self._mark) else find_process(self._mark)

    def start(self, command: Sequence[str], url: str, *, timeout_s: float) -> int:
        """Start it and wait until it answers; its pid. CommandError with the last line of its
        output when it does not."""
        output = self._directory / f"{self._name}.log"
        pid = spawn_detached(
            command, cwd=self._directory, output=output, environment=environment_of_child()
        )
        deadline = time.monotonic() + timeout_s
        while not _answers(url):
            ended = exit_status(pid) is not None
            if ended or time.monotonic() > deadline:
                self.stop(pid)
                words = last_line(output).removeprefix("headrace: ")
                raise CommandError(
                    f"the {self._name} did not start: {words or f'see {output}'}; the cluster "
                    "runs without it"
                )
            time.sleep(_POLL_S)
        return pid

    def stop(self, pid: int | None) -> bool:
        """Stop it; return whether one was running."""
        found = self.find(pid)
        if found is None:
            return False
        stop_process(found, self._mark, timeout_s=STOP_TIMEOUT_S)
        return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
