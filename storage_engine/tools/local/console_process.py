"""The console of a local cluster as a child process: started by `headrace up`, stopped by `down`.

It listens on this machine, on the port that it had before, else on 8480, else on a free one.
Queries of a secured cluster post their progress with the token in `console.token`, which only its
owner can read.
"""

import importlib.util
import secrets
import sys
from pathlib import Path

from storage_engine.tools.local.cluster_file import ClusterFile, ConsoleEntry
from storage_engine.tools.local.cluster_plan import HOST
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.tools.local.web_process import START_TIMEOUT_S, WebProcess, free_port

NEEDED = ("starlette", "uvicorn")
HOW_TO_GET_IT = "the console needs two more packages: pip install 'headrace[console]'"
USUAL_PORT = 8480
_TOKEN_FILE = "console.token"


def console_is_installed() -> bool:
    """Whether the packages of the console's extra are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


class ConsoleProcess:
    """The console of one folder, running or not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.mark = ("console", "--cluster", str(directory))
        self._process = WebProcess(directory, "console", self.mark)

    def find(self, entry: ConsoleEntry | None) -> int | None:
        """The pid of the console on record, or of one that was started since then by hand on the
        same folder; None when neither runs, or none is on record."""
        return None if entry is None else self._process.find(entry.pid)

    def start(self, state: ClusterFile) -> ConsoleEntry:
        """Start the console and wait until it answers. CommandError with the last line of its
        output when it does not."""
        port = free_port(USUAL_PORT if state.console is None else state.console.port)
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", *self.mark]
        command += ["--port", str(port)]
        token_file = None
        if state.security is not None:
            token_file = _TOKEN_FILE
            path = self._directory / token_file
            if not path.exists():
                write_whole(path, secrets.token_urlsafe(32).encode() + b"\n")
            command += ["--progress-token-file", str(path)]
        url = f"http://{HOST}:{port}"
        pid = self._process.start(command, url, timeout_s=START_TIMEOUT_S)
        return ConsoleEntry(url=url, port=port, pid=pid, progress_token_file=token_file)

    def stop(self, entry: ConsoleEntry | None) -> bool:
        """Stop the console; return whether one was running."""
        return entry is not None and self._process.stop(entry.pid)
