"""A broker of a local cluster as a child process: its command line, how to recognise it, and the
end of its log.

A broker is recognised by the absolute path of its `server.properties` in its arguments, never by a
pid alone.
"""

import os
import sys
from pathlib import Path

import storage_engine
from storage_engine.log.recovery.recovery import MARK as RECOVERY_MARK
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.processes import StopOutcome as StopOutcome
from storage_engine.tools.local.processes import (
    find_process,
    is_running,
    kill_process,
    spawn_detached,
    stop_process,
)

RAW_OUTPUT_FILE = "broker.err"
"""The file beside `broker.log` with everything that the broker's last run wrote to stderr, such as
the reason why it did not start."""

_TAIL_BYTES = 8192


class BrokerProcess:
    """The process of one broker, running or not."""

    def __init__(self, directory: Path, entry: BrokerEntry) -> None:
        self._directory = directory
        self._entry = entry
        self._config = directory / entry.config

    @property
    def mark(self) -> tuple[str, ...]:
        return ("broker", str(self._config))

    @property
    def raw_output(self) -> Path:
        return self._config.parent / RAW_OUTPUT_FILE

    @property
    def log_file(self) -> Path:
        return self._directory / self._entry.log_file

    def find(self) -> int | None:
        """The pid of the running broker: the one on record, or one started by hand on the same
        file.
        """
        if is_running(self._entry.pid, self.mark):
            return self._entry.pid
        return find_process(self.mark)

    def start(self, *, cpu: int | None = None) -> int:
        """Start it and return its pid at once; it does not serve yet. With `cpu` it runs on that
        processor alone."""
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", *self.mark]
        command += ["--log-file", str(self.log_file)]
        if cpu is not None:
            command += ["--cpus", str(cpu)]
        if self.raw_output.exists() and self.raw_output.stat().st_size:
            self.raw_output.replace(self.raw_output.with_name(RAW_OUTPUT_FILE + ".1"))
        return spawn_detached(
            command,
            cwd=self._config.parent,
            output=self.raw_output,
            environment=environment_of_child(),
        )

    def stop(self, *, timeout_s: float) -> StopOutcome:
        """Controlled shutdown, and SIGKILL after `timeout_s`."""
        return stop_process(self.find(), self.mark, timeout_s=timeout_s)

    def kill(self) -> None:
        """Send SIGKILL, without a controlled shutdown."""
        kill_process(self.find(), self.mark)

    def recovery_line(self) -> str | None:
        """The last line about the progress of recovery at start; None once the broker logs anything
        else."""
        _, mark, rest = last_line(self.log_file).partition(RECOVERY_MARK)
        return mark + rest if mark else None

    def last_words(self) -> str:
        """The last line of its stderr, else of its log: mostly why it ended."""
        for path in (self.raw_output, self.log_file):
            line = last_line(path)
            if line:
                return line.removeprefix("headrace: ")
        return f"it said nothing, see '{self.log_file}'"


def last_line(path: Path) -> str:
    """The last line of a file that is not empty; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def environment_of_child() -> dict[str, str]:
    """Ours, so that the child finds this very package, installed or not, whatever its working
    folder.
    """
    root = str(Path(storage_engine.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else os.pathsep.join((root, inherited))
    return {**os.environ, "PYTHONPATH": path}
