"""What our clients count, and how others get it."""

import gc

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from storage_engine.client import ClientCollector, client_metrics, export_to_opentelemetry
from storage_engine.client.process_metrics import IDS_MAX, OTHER, _counted, figures_for
from storage_engine.core.metrics import ClientFigures


class Owner:
    pass


def test_clients_with_one_id_are_counted_together_and_an_ended_one_counts_on():
    one, other = Owner(), Owner()
    figures_for(one, "test-a").delivered(10, 1_000)
    figures_for(other, "test-a").delivered(5, 500)
    assert client_metrics()["test-a"].records_sent == 15
    del one
    gc.collect()
    assert client_metrics()["test-a"].records_sent == 15
    assert client_metrics()["test-a"].batch_bytes.count == 2


def test_client_ids_without_end_are_counted_as_one():
    by_id: dict[str, ClientFigures] = {}
    for number in range(IDS_MAX + 50):
        _counted(by_id, f"id-{number}").batches_sent += 1
    assert len(by_id) == IDS_MAX + 1
    assert by_id[OTHER].batches_sent == 50


def test_prometheus_gets_counts_and_buckets():
    owner = Owner()
    figures = figures_for(owner, "test-b")
    figures.delivered(3, 100)
    figures.send_ns.observe(3_000_000)
    registry = CollectorRegistry()
    registry.register(ClientCollector())
    text = generate_latest(registry).decode()
    assert 'headrace_client_records_sent_total{client_id="test-b"} 3.0' in text
    assert 'headrace_client_send_seconds_bucket{client_id="test-b",le="0.0025"} 0.0' in text
    assert 'headrace_client_send_seconds_bucket{client_id="test-b",le="0.005"} 1.0' in text
    assert 'headrace_client_send_seconds_sum{client_id="test-b"} 0.003' in text


def test_opentelemetry_gets_the_same():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="the extra otel is missing")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    owner = Owner()
    figures = figures_for(owner, "test-c")
    figures.read(7, 700)
    figures.fetch_ns.observe(3_000_000)
    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    export_to_opentelemetry(provider)
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    attributes = dict(point.attributes or {})
                    if attributes["client_id"] == "test-c":
                        key = metric.name, attributes.get("quantile")
                        found[key] = point.value
    provider.shutdown()
    assert found["headrace.client.records_read", None] == 7
    assert found["headrace.client.fetch_seconds", "0.99"] == 0.005
    assert found["headrace.client.fetch_seconds.sum", None] == 0.003
