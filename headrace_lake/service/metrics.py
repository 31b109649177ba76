"""Metrics of one instance for Prometheus, read from its tables at each scrape."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from headrace_lake.service.table_task import TableTask
from storage_engine.core.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "headrace_lake_"

_COUNTERS = {
    "rows": "Rows that were committed into the table.",
    "commits": "Commits into the table.",
    "dropped": "Batches that were dropped before their commit, and read again.",
    "failures": "Failures of the store or of brokers.",
}
_GAUGES = {
    "partitions": "Partitions that this instance writes.",
    "lag_records": "Offsets between the table and the end of what can be read, as last heard.",
    "stopped": "1 while a person has to do something, as the log and 'headrace lake status' say.",
    "waiting": "1 while the table is tried again after a failure.",
    "last_commit_timestamp_seconds": "When this instance has committed last; 0: not yet.",
}


class HasTables(Protocol):
    """A service."""

    @property
    def tables(self) -> Mapping[str, TableTask]: ...

    @property
    def refused(self) -> Mapping[str, str]: ...


def serve_metrics(address: tuple[str, int], service: HasTables) -> str:
    """Give the metrics at this address, in a thread; returns the URL. ConfigError where it can't be
    listened on."""
    # Imported only where metrics are configured.
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

    host, port = address
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(LakeCollector(service))
    try:
        server, _ = start_http_server(port, host, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"--metrics {host}:{port}: {error.strerror}; give an address of this machine, with a "
            "port that is free"
        ) from None
    return f"http://{host}:{server.server_port}/metrics"


class LakeCollector:
    """Gives the figures to `prometheus_client`."""

    def __init__(self, service: HasTables) -> None:
        self._service = service

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        tables = list(self._service.tables.items())
        for name, doc in _COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, doc, labels=["topic"])
            for topic, table in tables:
                counter.add_metric([topic], getattr(table.figures, name))
            yield counter
        for name, doc in _GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, doc, labels=["topic"])
            for topic, table in tables:
                gauge.add_metric([topic], _gauge(name, table))
            if name == "stopped":
                for topic in self._service.refused:
                    gauge.add_metric([topic], 1)
            yield gauge


def _gauge(name: str, table: TableTask) -> float:
    match name:
        case "partitions":
            return len(table.owned)
        case "lag_records":
            return table.lag_records
        case "stopped":
            return float(table.is_stopped)
        case "waiting":
            return float(bool(table.line) and not table.is_stopped)
        case _:
            return table.figures.last_commit_ms / 1000
