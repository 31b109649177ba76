"""The samples of one scrape, and their text in the formats of Prometheus and OpenMetrics.

A line is made where its figure is read. The library takes 11 to 17 µs for a sample, which is 0.2 s
for a thousand partitions; a line takes 0.5 µs. The library negotiates the format and gives the
figures of the process; tests read what comes out with its parsers.

Both formats write a sample in the same way. They differ in the heading of a counter, whose name
ends in _total, and in the end.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from storage_engine.broker.metrics.catalog import CATALOG, COUNTER, MetricRow
from storage_engine.core.metrics import Histogram

OPEN_METRICS = "application/openmetrics-text"

OPEN_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def media_type_for(accept: str) -> str:
    """The media type of an answer to this `Accept`: one of two, whatever versions it names, so that
    one text serves all requests for its type."""
    # Imported only where metrics are configured.
    from prometheus_client.exposition import choose_encoder

    try:
        _, chosen = choose_encoder(accept)
    except (TypeError, ValueError):
        # The version is not a number.
        return TEXT_TYPE
    return OPEN_TYPE if chosen.startswith(OPEN_METRICS) else TEXT_TYPE


def process_text(media_type: str) -> str:
    """The metrics of the process, and the end of the text."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    encode, _ = choose_encoder(media_type)
    return encode(registry).decode()


def prepare() -> None:
    """Load the library, which takes a tenth of a second; called on a thread."""
    process_text(OPEN_METRICS)


LINES_PER_PIECE = 500
"""Lines that are joined at a time: some 50 µs."""

TOTAL = "_total"
Label = str | int | Path


def escaped(text: str) -> str:
    """Escape text for the value of a label: it may come from a client, with any characters."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labelled(names: Sequence[str], values: Sequence[Label]) -> str:
    """The labels of a line, with the space before its value."""
    if not names:
        return " "
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs) + "} "


class Samples:
    """The lines of a scrape by metric, each without the name of its metric."""

    def __init__(self) -> None:
        self._rows = {row.name: row for row in CATALOG}
        self._lines: dict[str, list[str]] = {row.name: [] for row in CATALOG}

    def add(self, name: str, value: float, *labels: Label) -> None:
        """Add a sample; `labels`: the values, in the order of the catalog."""
        row = self._rows[name]
        self._lines[name].append(f"{labelled(row.labels, labels)}{value}\n")

    def adder(self, name: str) -> Callable[[str], None]:
        """Return a function that adds lines such as `{topic="a",partition="0"} 7` and a newline."""
        return self._lines[name].append

    def add_histogram(self, name: str, histogram: Histogram, unit: float, *labels: Label) -> None:
        """`unit`: the divisor of the bounds and the total."""
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
        """The text of all samples, in pieces, without metrics that have none."""
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
