"""Reads the process: how long the event loop's turns take, its disks, its certificates.

Whatever may have to wait for a disk is asked for by a background thread, every ten seconds, and
told as it was then.

The samples of one scrape, and their text in the formats of Prometheus and OpenMetrics.

A line is made where its figure is read. The library takes 11 to 17 µs for a sample, which is 0.2 s
for a thousand partitions; a line takes 0.5 µs. The library negotiates the format and gives the
figures of the process; tests read what comes out with its parsers.

Both formats write a sample in the same way. They differ in the heading of a counter, whose name
ends in _total, and in the end.

One scrape: all parts of a broker, read one after the other, and their text.

The work is a generator: where it yields, the event loop may take a turn. Each figure is true at the
time of its own read. A part that fails is left out, told in the log and counted.
"""

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from storage_engine.broker import unexpected
from storage_engine.broker.metrics.catalog import CATALOG, COUNTER, MetricRow
from storage_engine.core.metrics import Histogram
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.log.dirs.log_dirs import LogDirs
from storage_engine.net.server import Server

LINES_PER_PIECE = 500
"""Lines that are joined at a time, which takes some 50 µs."""

TOTAL = "_total"


def escaped(text: str) -> str:
    """Text as the value of a label: it may come from a client, and have any characters."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labelled(names: Sequence[str], values: Sequence[object]) -> str:
    """The labels of a line, and the space before its value."""
    if not names:
        return " "
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs) + "} "


class Samples:
    """The lines of a scrape by the name of their metric, without that name."""

    def __init__(self) -> None:
        self._rows = {row.name: row for row in CATALOG}
        self._lines: dict[str, list[str]] = {row.name: [] for row in CATALOG}

    def add(self, name: str, value: float, *labels: object) -> None:
        """`labels`: the values, in the order of the catalog."""
        row = self._rows[name]
        self._lines[name].append(f"{labelled(row.labels, labels)}{value}\n")

    def adder(self, name: str) -> Callable[[str], None]:
        """Takes lines that are ready, such as `{topic="a",partition="0"} 7` and a new line."""
        return self._lines[name].append

    def add_histogram(self, name: str, histogram: Histogram, unit: float, *labels: object) -> None:
        """`unit`: what a bound and the total are divided by."""
        row = self._rows[name]
        inner = labelled(row.labels, labels).strip()[1:-1]
        lines = self._lines[name]
        cumulative = histogram.cumulative()
        for bound, below in zip((*histogram.bounds, None), cumulative, strict=True):
            end = "+Inf" if bound is None else repr(bound / unit)
            lines.append(f'_bucket{{{inner},le="{end}"}} {below}\n')
        lines.append(f"_sum{{{inner}}} {histogram.total / unit}\n")
        lines.append(f"_count{{{inner}}} {cumulative[-1]}\n")

    def text(self, *, open_metrics: bool) -> Iterator[str]:
        """All of it, in pieces; metrics without a sample are left out."""
        for name, lines in self._lines.items():
            if not lines:
                continue
            yield _heading(self._rows[name], open_metrics)
            for start in range(0, len(lines), LINES_PER_PIECE):
                yield name + name.join(lines[start : start + LINES_PER_PIECE])


def _heading(row: MetricRow, open_metrics: bool) -> str:
    name = row.name
    if row.kind is COUNTER and open_metrics:
        name = name.removesuffix(TOTAL)
    return f"# HELP {name} {row.doc}\n# TYPE {name} {row.kind.value}\n"


LOOK_MS = 250
"""How often the loop's turns are looked at. A turn that takes longer makes this look late."""

PERIOD_MS = 10_000
"""A part of the minute of which the longest turn is told; also how often disks are asked."""

PERIODS = 6
NS_PER_S = 1_000_000_000
_DISK = "kafka_server_kafkaserver_linux_disk_"


class LoopFigures:
    """The loop's longest turn in the last minute, and how busy its thread was.

    Turns that took up requests are measured by the server. Of other turns it is known how late they
    made a timer.
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
    """The file systems of the log dirs."""

    def __init__(self, dirs: LogDirs, scheduler: Scheduler, background: Background) -> None:
        self._dirs = dirs
        self._scheduler = scheduler
        self._background = background
        self._usage: Mapping[Path, tuple[int, int]] = {}
        """(total, free) bytes by directory."""

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
    """Those that the kernel counts for this process; none where it does not tell."""
    found = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/io").read_text().splitlines():
            name, _, size = line.partition(": ")
            if name in ("read_bytes", "write_bytes"):
                found[name] = int(size)
    return found


class CertificateFigures:
    """The ends of the listeners' certificates."""

    def __init__(self, ends_ms: Callable[[], Mapping[str, int]], clock: Clock) -> None:
        """`ends_ms`: by the name of each listener with TLS when its certificate ends, in wall
        ms."""
        self._ends_ms = ends_ms
        self._clock = clock

    def read(self, samples: Samples) -> Iterator[None]:
        now_ms = self._clock.wall_ms()
        for listener, end_ms in self._ends_ms().items():
            days = (end_ms - now_ms) / 86_400_000
            samples.add("headrace_certificate_expires_days", round(days, 3), listener)
        yield


OPEN_METRICS = "application/openmetrics-text"
OPEN_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class FigureSource(Protocol):
    """A part of a broker that has figures."""

    def read(self, samples: Samples) -> Iterator[None]:
        """Adds them, in pieces of less than a millisecond."""
        ...


class Scrapes:
    """Answers scrapes."""

    def __init__(self, sources: Mapping[str, FigureSource]) -> None:
        """`sources` by name, for errors."""
        self._sources = sources
        self._failures: Counter[str] = Counter()
        self._last_s = 0.0

    def text(self, media_type: str) -> Iterator[str]:
        """The pieces of an answer of that type; empty ones where a turn may end."""
        begun_ns, waited_ns = time.perf_counter_ns(), 0
        samples = Samples()
        for name, source in self._sources.items():
            for _ in self._guarded(name, source, samples):
                waiting_ns = time.perf_counter_ns()
                yield ""
                waited_ns += time.perf_counter_ns() - waiting_ns
        for name, count in self._failures.items():
            samples.add("headrace_scrape_errors_total", count, name)
        samples.add("headrace_scrape_seconds", self._last_s)
        is_open_metrics = media_type.startswith(OPEN_METRICS)
        for piece in samples.text(open_metrics=is_open_metrics):
            waiting_ns = time.perf_counter_ns()
            yield piece
            waited_ns += time.perf_counter_ns() - waiting_ns
        yield process_text(media_type) if is_open_metrics else process_text("")
        self._last_s = (time.perf_counter_ns() - begun_ns - waited_ns) / 1e9

    def _guarded(self, name: str, source: FigureSource, samples: Samples) -> Iterator[None]:
        try:
            yield from source.read(samples)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are told
            self._failures[name] += 1
            unexpected.report(f"a scrape of {name}", error)


def media_type_for(accept: str) -> str:
    """The type of an answer, by the `Accept` of a request: one of two, whatever versions it names,
    since a text that was made serves all who ask for its type."""
    # It is in no process without metrics.
    from prometheus_client.exposition import choose_encoder

    try:
        _, chosen = choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is no number.
        return TEXT_TYPE
    return OPEN_TYPE if chosen.startswith(OPEN_METRICS) else TEXT_TYPE


def process_text(media_type: str) -> str:
    """The figures of the process, and the end of the text."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    encode, _ = choose_encoder(media_type)
    return encode(registry).decode()


def prepare() -> None:
    """Loads the library, which takes a tenth of a second; by a thread."""
    process_text(OPEN_METRICS)


assert len({row.name for row in CATALOG}) == len(CATALOG), "a name stands twice"
