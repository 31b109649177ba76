"""Starts the watcher of this process, tells it of sessions, and replaces it when it ends.

    started ──ends──► replaced, at once or RESTART_S after the last start
       │
       └─ it can't watch here, or can't be started: one warning; the session's timeout decides

Where the watcher is gone, so is the proof of death, until there is another one.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import storage_engine
from storage_engine.broker.watcher.program import CAN_NOT_WATCH, IGNORED
from storage_engine.broker.watcher.told import WatchedBroker, session_line
from storage_engine.core.ports import OpenProcess, Processes, Scheduler
from storage_engine.zookeeper.session_credentials import SessionCredentials

log = logging.getLogger(__name__)

RESTART_S = 10.0
"""The least time between two starts."""
START_AGAIN_S = 60.0
"""The time before the next attempt where the system gave no process."""
END_S = 2.0
"""How long a watcher may take to end after it was told that there is no session any more."""
_PROGRAM = "storage_engine.broker.watcher.program"


class SessionWatcher:
    """The watcher of one broker. Calls and callbacks are on the loop, but for `session_is`."""

    def __init__(self, broker: WatchedBroker, processes: Processes, scheduler: Scheduler) -> None:
        self._broker = broker
        self._processes = processes
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._line = b""
        """The present session; empty before the first."""
        self._process: subprocess.Popen[bytes] | None = None
        self._open: OpenProcess | None = None
        self._started_s = -RESTART_S
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The watcher's process; None while there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the watcher; a broker that gets none goes on without."""
        if self._closed:
            return
        self._started_s = time.monotonic()
        try:
            process = self._started()
        except OSError as error:
            self._warn(f"can't be started ({error})")
            self._start_later(START_AGAIN_S)
            return
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        with self._lock:
            self._process = process
            self._tell(self._broker.encode() + self._line)
        self._open = self._processes.open(process.pid)
        if self._open is None:
            log.warning("watcher process=%d: nobody notices when it ends", process.pid)
        else:
            self._open.when_ended(self._ended)

    def _started(self) -> "subprocess.Popen[bytes]":
        broker = self._broker
        # What stops a service stops no watcher, not even at its start: it inherits this.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, str(broker.pid), str(broker.broker_id)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                # Whoever reads the stderr of a broker to its end waits for the watcher, too.
                stderr=None if broker.log_file is None else subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def session_is(self, credentials: SessionCredentials | None) -> None:
        """Tell the watcher of a new session; None: the last one is closed. From any thread."""
        with self._lock:
            self._line = session_line(credentials)
            self._tell(self._line)

    def close(self) -> None:
        """Replace the watcher no more. It lives on where the last session was not closed."""
        self._closed = True
        if self._open is not None:
            self._open.close()
        process = self._process
        if process is None or process.stdin is None:
            return
        if not self._line:
            self.session_is(None)
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self._line == session_line(None):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)

    def _tell(self, lines: bytes) -> None:
        """The lock is held."""
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            os.write(process.stdin.fileno(), lines)
        except OSError as error:
            # It has ended, which its pidfd tells, or it reads no more.
            log.info("watcher process=%d not told reason=%s", process.pid, error)

    def _ended(self) -> None:
        process = self._process
        if self._closed or process is None:
            return
        status = process.wait()
        with self._lock:
            self._process = None
            if process.stdin is not None:
                process.stdin.close()
        if status == CAN_NOT_WATCH:
            self._warn("can't watch here: the system does not say when a process ends")
            return
        delay_s = max(0.0, self._started_s + RESTART_S - time.monotonic())
        self._warn(f"has ended with status {status}, the next one starts in {delay_s:.1f} s")
        self._start_later(delay_s)

    def _start_later(self, delay_s: float) -> None:
        self._scheduler.call_later(int(delay_s * 1000), self.start)

    def _warn(self, what: str) -> None:
        log.warning(
            "watcher of broker %d %s: if this process dies without one, its leaders are replaced "
            "when its session expires", self._broker.broker_id, what,
        )  # fmt: skip


def log_file() -> str | None:
    """Return the file that this process logs to; None for stderr."""
    handlers = logging.getLogger().handlers
    files = [each.baseFilename for each in handlers if isinstance(each, logging.FileHandler)]
    return files[0] if files else None


def _environment() -> dict[str, str]:
    """Ours, so that this very package is found."""
    root = str(Path(storage_engine.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    path = root if not inherited else os.pathsep.join((root, inherited))
    return {**os.environ, "PYTHONPATH": path}
