"""The schema registry of a local cluster as a child process: started by `headrace up --registry`,
and by each `up` after that; stopped by `down`.

It listens on this machine, on the port that it had before, else on 8081, else on a free one.
"""

import importlib.util
import sys
from pathlib import Path
from urllib.parse import urlsplit

from storage_engine.tools.local.cluster_file import ClusterFile, RegistryEntry
from storage_engine.tools.local.cluster_plan import HOST
from storage_engine.tools.local.web_process import WebProcess, free_port

NEEDED = ("starlette", "uvicorn")
HOW_TO_GET_IT = "the registry needs two more packages: pip install 'headrace[registry]'"
USUAL_PORT = 8081
_START_TIMEOUT_S = 60.0
"""It makes its topic, or reads it whole."""


def registry_is_installed() -> bool:
    """Whether the packages of the registry's extra are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


class RegistryProcess:
    """The registry of one folder, running or not."""

    def __init__(self, directory: Path) -> None:
        self._mark = ("registry", "--cluster", str(directory))
        self._process = WebProcess(directory, "registry", self._mark)

    def find(self, entry: RegistryEntry | None) -> int | None:
        return None if entry is None else self._process.find(entry.pid)

    def start(self, state: ClusterFile) -> RegistryEntry:
        """Start it and wait until it answers. CommandError when it does not."""
        before = None if state.registry is None else urlsplit(state.registry.url).port
        port = free_port(before or USUAL_PORT)
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", *self._mark]
        command += ["--listen", f"{HOST}:{port}"]
        url = f"http://{HOST}:{port}"
        pid = self._process.start(command, url, timeout_s=_START_TIMEOUT_S)
        return RegistryEntry(url=url, pid=pid)

    def stop(self, entry: RegistryEntry | None) -> bool:
        """Stop it; return whether one was running."""
        return entry is not None and self._process.stop(entry.pid)
