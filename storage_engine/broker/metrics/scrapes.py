"""One scrape: all parts of a broker, read one after the other, and their text.

The work is a generator: where it yields, the event loop may take a turn. Each figure is true at the
time of its own read. A part that fails is left out, logged and counted.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from storage_engine.broker import unexpected
from storage_engine.broker.metrics.catalog import CATALOG
from storage_engine.broker.metrics.exposition import OPEN_METRICS, Samples, process_text


class FigureSource(Protocol):
    """A part of a broker that has metrics."""

    def read(self, samples: Samples) -> Iterator[None]:
        """Add the samples, in pieces of less than a millisecond."""
        ...


class Scrapes:
    """Answers scrapes."""

    def __init__(self, sources: Mapping[str, FigureSource]) -> None:
        """`sources` by their names, for errors."""
        self._sources = sources
        self._failures: Counter[str] = Counter()
        self._last_s = 0.0

    def text(self, media_type: str) -> Iterator[str]:
        """The pieces of the answer in that media type; empty ones where a turn may end."""
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


assert len({row.name for row in CATALOG}) == len(CATALOG), "a name stands twice"
