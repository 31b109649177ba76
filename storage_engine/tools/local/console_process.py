"""The console of a local cluster as a child process: started by `headrace up`, stopped by `down`.

It listens on this machine, on the port that it had before, else on 8480, else on a free one.
Queries of a secured cluster post their progress with the token in `console.token`, which only its
owner can read.
"""

import importlib.util
import secrets
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_process import environment_of_child, last_line
from storage_engine.tools.local.cluster_file import ClusterFile, ConsoleEntry
from storage_engine.tools.local.cluster_plan import HOST
from storage_engine.tools.local.free_ports import find_free_port, is_port_free
from storage_engine.tools.local.processes import (
    exit_status,
    find_process,
    is_running,
    spawn_detached,
    stop_process,
)
from storage_engine.tools.local.secret_files import write_whole

NEEDED = ("starlette", "uvicorn")
HOW_TO_GET_IT = "the console needs two more packages: pip install 'headrace[console]'"
USUAL_PORT = 8480
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 8.0
_POLL_S = 0.1
_LOG_FILE, _TOKEN_FILE = "console.log", "console.token"


def console_is_installed() -> bool:
    """Whether the packages of the console's extra are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


class ConsoleProcess:
    """The console of one folder, running or not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.mark = ("console", "--cluster", str(directory))

    def find(self, entry: ConsoleEntry | None) -> int | None:
        """The pid of the console on record, or of one that was started since then by hand on the
        same folder; None when neither runs, or none is on record."""
        if entry is not None and is_running(entry.pid, self.mark):
            return entry.pid
        return find_process(self.mark) if entry is not None else None

    def start(self, state: ClusterFile) -> ConsoleEntry:
        """Start the console and wait until it answers. CommandError with the last line of its
        output when it does not."""
        port = USUAL_PORT if state.console is None else state.console.port
        if not is_port_free(HOST, port):
            port = find_free_port(HOST)
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", *self.mark]
        command += ["--port", str(port)]
        token_file = None
        if state.security is not None:
            token_file = _TOKEN_FILE
            path = self._directory / token_file
            if not path.exists():
                write_whole(path, secrets.token_urlsafe(32).encode() + b"\n")
            command += ["--progress-token-file", str(path)]
        output = self._directory / _LOG_FILE
        pid = spawn_detached(
            command, cwd=self._directory, output=output, environment=environment_of_child()
        )
        entry = ConsoleEntry(
            url=f"http://{HOST}:{port}", port=port, pid=pid, progress_token_file=token_file
        )
        self._wait(entry, output)
        return entry

    def _wait(self, entry: ConsoleEntry, output: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        assert entry.pid is not None
        while not _answers(entry.url):
            ended = exit_status(entry.pid) is not None
            if ended or time.monotonic() > deadline:
                self.stop(entry)
                words = last_line(output).removeprefix("headrace: ")
                raise CommandError(
                    f"the console did not start: {words or f'see {output}'}; the cluster runs "
                    f"without it"
                )
            time.sleep(_POLL_S)

    def stop(self, entry: ConsoleEntry | None) -> bool:
        """Stop the console; return whether one was running."""
        pid = self.find(entry)
        if pid is None:
            return False
        stop_process(pid, self.mark, timeout_s=STOP_TIMEOUT_S)
        return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
