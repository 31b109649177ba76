"""Reads the process: how long the event loop's turns take, its disks, its certificates.

Values that may have to wait for a disk are read by a background thread every ten seconds; a scrape
reports the last ones.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from storage_engine.broker.metrics.exposition import Samples
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.log.dirs.log_dirs import LogDirs
from storage_engine.net.server import Server

LOOK_MS = 250
"""The interval of checks of the loop's turns. A longer turn makes a check late."""

PERIOD_MS = 10_000
"""The part of the minute for which one longest turn is kept; also how often disks are read."""

PERIODS = 6
NS_PER_S = 1_000_000_000
_DISK = "kafka_server_kafkaserver_linux_disk_"


class LoopFigures:
    """The loop's longest turn in the last minute, and how busy its thread was.

    Turns with requests are measured by the server. Other turns are measured by how late they make a
    timer.
    """

    def __init__(self, server: Server, scheduler: Scheduler, clock: Clock) -> None:
        self._server = server
        self._scheduler = scheduler
        self._clock = clock
        self._longest_ns = deque([0], maxlen=PERIODS)
        self._due_ns = 0
        self._period_ns = time.perf_counter_ns()
        self._worked_ns = time.thread_time_ns()
        self.busy = 0.0

    def start(self) -> None:
        self._due_ns = time.perf_counter_ns() + LOOK_MS * 1_000_000
        self._scheduler.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        now_ns = time.perf_counter_ns()
        self._note(now_ns - self._due_ns)
        if now_ns - self._period_ns >= PERIOD_MS * 1_000_000:
            worked_ns = time.thread_time_ns()
            self.busy = min(1.0, (worked_ns - self._worked_ns) / (now_ns - self._period_ns))
            self._period_ns, self._worked_ns = now_ns, worked_ns
            self._longest_ns.append(0)
        self.start()

    def _note(self, late_ns: int) -> None:
        server = self._server
        self._longest_ns[-1] = max(self._longest_ns[-1], late_ns, server.longest_turn_ns)
        server.longest_turn_ns = 0

    @property
    def longest_s(self) -> float:
        self._note(0)
        return max(self._longest_ns) / NS_PER_S

    def read(self, samples: Samples) -> Iterator[None]:
        samples.add("headrace_loop_longest_turn_seconds", self.longest_s)
        samples.add("headrace_loop_busy_ratio", round(self.busy, 4))
        samples.add("headrace_loop_turns_total", self._server.turns)
        idle = round(1 - self.busy, 4)
        samples.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
        samples.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
        yield


class DiskFigures:
    """The file systems of the log dirs, and the bytes read and written."""

    def __init__(self, dirs: LogDirs, scheduler: Scheduler, background: Background) -> None:
        self._dirs = dirs
        self._scheduler = scheduler
        self._background = background
        self._usage: Mapping[Path, tuple[int, int]] = {}
        """Log dir -> (total, free) bytes."""

    def start(self) -> None:
        paths = self._dirs.working_paths
        self._background.submit(lambda: _usage_of(paths), self._asked, lambda _: self._asked({}))

    def _asked(self, usage: Mapping[Path, tuple[int, int]]) -> None:
        self._usage = usage
        self._scheduler.call_later(PERIOD_MS, self.start)

    def read(self, samples: Samples) -> Iterator[None]:
        for path, (total, free) in self._usage.items():
            samples.add("headrace_log_dir_total_bytes", total, path)
            samples.add("headrace_log_dir_free_bytes", free, path)
        for log_dir in self._dirs.working:
            samples.add("headrace_log_dir_full", int(log_dir.room.is_full), log_dir.path)
        samples.add("kafka_log_logmanager_offlinelogdirectorycount", self._dirs.unusable_count)
        for name, size in _own_disk_bytes().items():
            samples.add(f"{_DISK}{name}", size)
        yield


def _usage_of(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in paths:
        with suppress(OSError):
            usage = shutil.disk_usage(path)
            found[path] = usage.total, usage.free
    return found


def _own_disk_bytes() -> dict[str, int]:
    """Disk bytes of this process from /proc/self/io; empty if unreadable."""
    found = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/io").read_text().splitlines():
            name, _, size = line.partition(": ")
            if name in ("read_bytes", "write_bytes"):
                found[name] = int(size)
    return found


class CertificateFigures:
    """The expiry of the listeners' certificates."""

    def __init__(self, ends_ms: Callable[[], Mapping[str, int]], clock: Clock) -> None:
        """`ends_ms` returns the end of each TLS listener's certificate in wall ms, by listener
        name."""
        self._ends_ms = ends_ms
        self._clock = clock

    def read(self, samples: Samples) -> Iterator[None]:
        now_ms = self._clock.wall_ms()
        for listener, end_ms in self._ends_ms().items():
            days = (end_ms - now_ms) / 86_400_000
            samples.add("headrace_certificate_expires_days", round(days, 3), listener)
        yield
