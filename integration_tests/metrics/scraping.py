"""Scrapes the brokers of a cluster, as Prometheus does."""

import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from storage_engine.tools.local.local_cluster import LocalCluster

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


class Figure(NamedTuple):
    """One sample of one broker."""

    broker: int
    labels: Mapping[str, str]
    value: float


Figures = dict[str, list[Figure]]


def scrape_text(url: str, accept: str = "text/plain") -> str:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def scrape(cluster: LocalCluster, *, accept: str = "text/plain") -> Figures:
    """All figures of all brokers that run, by name."""
    found: Figures = {}
    for entry in cluster.state.brokers:
        if entry.pid is None:
            continue
        assert entry.metrics_url is not None
        parse = open_metrics if accept == OPEN_METRICS else prometheus
        for family in parse(scrape_text(entry.metrics_url, accept)):
            for sample in family.samples:
                figure = Figure(entry.id, sample.labels, sample.value)
                found.setdefault(sample.name, []).append(figure)
    return found


def total(figures: Figures, name: str, **labels: str) -> float:
    """The sum over all brokers of the samples with these labels; an error where there is none."""
    chosen = [each for each in figures[name] if labels.items() <= each.labels.items()]
    assert chosen, f"no sample of {name} with {labels}"
    return sum(each.value for each in chosen)
