"""The figures of all clients of this process, by their client ids.

    from storage_engine.client import client_metrics

    for client_id, figures in client_metrics().items():
        print(client_id, figures.records_sent, figures.send_ns.quantile(0.99) / 1e6, "ms")

They are those of Producer, Consumer, Admin, BulkReader and of Spark's tasks in this process. For
Prometheus, `prometheus_client.REGISTRY.register(ClientCollector())`; for OpenTelemetry (extra
`otel`), `export_to_opentelemetry()`. What has ended counts on, so that no figure falls.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from storage_engine.core.metrics import COUNTS, HISTOGRAMS, NS_PER_MS, ClientFigures, Histogram

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from prometheus_client.core import Metric

PREFIX = "headrace_client_"
NS_PER_S = 1000 * NS_PER_MS
IDS_MAX = 1_000
"""Client ids that are told apart; further ones count as OTHER."""
OTHER = "other"
QUANTILES = (0.5, 0.95, 0.99)

_SHOWN: Mapping[str, tuple[str, float]] = {
    "batch_bytes": ("batch_bytes", 1),
    "send_ns": ("send_seconds", NS_PER_S),
    "fetch_ns": ("fetch_seconds", NS_PER_S),
}
"""The name of each histogram, and what its values are divided by."""

_live: dict[int, tuple[str, ClientFigures]] = {}
"""The client ids and figures of live clients, by the identity of the figures."""
_ended: dict[str, ClientFigures] = {}


def figures_for(owner: object, client_id: str) -> ClientFigures:
    """New figures, which count for as long as the owner lives, and are kept when it is gone."""
    figures = ClientFigures()
    _live[id(figures)] = client_id, figures
    end = weakref.finalize(owner, _end, figures)
    end.atexit = False
    return figures


def _end(figures: ClientFigures) -> None:
    client_id, _ = _live.pop(id(figures))
    _counted(_ended, client_id).add(figures)


def _counted(by_id: dict[str, ClientFigures], client_id: str) -> ClientFigures:
    if client_id not in by_id and len(by_id) >= IDS_MAX:
        client_id = OTHER
    return by_id.setdefault(client_id, ClientFigures())


def client_metrics() -> dict[str, ClientFigures]:
    """The sums of all clients by client id, as they are now."""
    found: dict[str, ClientFigures] = {}
    for client_id, figures in [*_ended.items(), *list(_live.values())]:
        _counted(found, client_id).add(figures)
    return found


class ClientCollector:
    """Gives the figures to `prometheus_client`: register it with a registry."""

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        by_id = client_metrics()
        for name, doc in COUNTS.items():
            counter = CounterMetricFamily(PREFIX + name, doc, labels=["client_id"])
            for client_id, figures in by_id.items():
                counter.add_metric([client_id], getattr(figures, name))
            yield counter
        for name, doc in HISTOGRAMS.items():
            shown, unit = _SHOWN[name]
            family = HistogramMetricFamily(PREFIX + shown, doc, labels=["client_id"])
            for client_id, figures in by_id.items():
                histogram = getattr(figures, name)
                ends = [*(repr(bound / unit) for bound in histogram.bounds), "+Inf"]
                buckets = list(zip(ends, histogram.cumulative(), strict=True))
                family.add_metric([client_id], buckets, histogram.total / unit)
            yield family


def export_to_opentelemetry(meter_provider: "MeterProvider | None" = None) -> None:
    """Gives the figures to OpenTelemetry, as observable instruments; of histograms the count, the
    sum and three quantiles. `meter_provider`: None for the global one. ImportError without the
    extra `otel`."""
    try:
        from opentelemetry.metrics import Observation, get_meter_provider
    except ImportError:
        raise ImportError("OpenTelemetry is not installed: pip install 'headrace[otel]'") from None
    meter = (meter_provider or get_meter_provider()).get_meter("headrace.client")

    def observed(
        read: Callable[[ClientFigures], float], **more: str
    ) -> "Callable[[CallbackOptions], list[Observation]]":
        return lambda _: [
            Observation(read(figures), {"client_id": client_id, **more})
            for client_id, figures in client_metrics().items()
        ]

    for name, doc in COUNTS.items():
        count = observed(attrgetter(name))
        meter.create_observable_counter(f"headrace.client.{name}", [count], "1", doc)
    for name, doc in HISTOGRAMS.items():
        shown, unit = _SHOWN[name]
        full, of_unit = f"headrace.client.{shown}", "By" if unit == 1 else "s"
        quantiles = [
            observed(partial(_quantile, name, unit, share), quantile=str(share))
            for share in QUANTILES
        ]
        meter.create_observable_gauge(full, quantiles, of_unit, doc)
        total = observed(partial(_total, name, unit))
        meter.create_observable_counter(f"{full}.sum", [total], of_unit, doc)


def _quantile(name: str, unit: float, share: float, figures: ClientFigures) -> float:
    histogram: Histogram = getattr(figures, name)
    return histogram.quantile(share) / unit


def _total(name: str, unit: float, figures: ClientFigures) -> float:
    histogram: Histogram = getattr(figures, name)
    return histogram.total / unit
