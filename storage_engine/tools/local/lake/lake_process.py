"""The lake of a local cluster as a child process: started by `headrace up --lake ROOT`, and by each
`up` after that; stopped by `down`.

It gives its metrics on this machine, on the port that it had before, else on 9480, else on a free
one.
"""

import importlib.util
import sys
from pathlib import Path
from urllib.parse import urlsplit

from storage_engine.tools.local.cluster_file import ClusterFile, LakeEntry
from storage_engine.tools.local.cluster_plan import HOST
from storage_engine.tools.local.web_process import WebProcess, free_port

NEEDED = ("deltalake", "obstore")
HOW_TO_GET_IT = "the lake needs two more packages: pip install 'headrace[lake]'"
USUAL_PORT = 9480
_START_TIMEOUT_S = 60.0


def lake_is_installed() -> bool:
    """Whether the packages of the lake's extra are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def absolute_root(given: str) -> str:
    """An absolute folder, or the URL as it is."""
    return given if "://" in given else str(Path(given).absolute())


class LakeProcess:
    """The lake of one folder, running or not."""

    def __init__(self, directory: Path) -> None:
        self._mark = ("lake", "run", "--cluster", str(directory))
        self._process = WebProcess(directory, "lake", self._mark)

    def find(self, entry: LakeEntry | None) -> int | None:
        return None if entry is None else self._process.find(entry.pid)

    def start(self, state: ClusterFile, root: str) -> LakeEntry:
        """Start it and wait until it gives its metrics. CommandError when it does not."""
        before = None if state.lake is None else urlsplit(state.lake.url).port
        port = free_port(before or USUAL_PORT)
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", *self._mark]
        command += ["--root", root, "--metrics", f"{HOST}:{port}"]
        url = f"http://{HOST}:{port}"
        pid = self._process.start(command, url, timeout_s=_START_TIMEOUT_S)
        return LakeEntry(root=root, url=url, pid=pid)

    def stop(self, entry: LakeEntry | None) -> bool:
        """Stop it; return whether one was running."""
        return entry is not None and self._process.stop(entry.pid)
