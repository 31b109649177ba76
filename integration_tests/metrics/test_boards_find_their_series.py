"""Boards that others have made for Apache Kafka find each of their series at our brokers, and so
does every name that our document has. Source: R-MET1, R-MET2."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.metrics.busy_cluster import (
    GROUP,
    OPEN_TOPIC,
    QUERY,
    READ,
    SENT,
    SETTINGS,
    SINK,
    TOPIC,
    busy,
)
from integration_tests.metrics.scraping import OPEN_METRICS, Figures, scrape, total
from integration_tests.support.cluster_support import running_cluster, wait_until
from storage_engine.broker.metrics.catalog import CATALOG, HISTOGRAM, PROCESS_NAMES
from storage_engine.tests.broker.metrics.test_catalog import expressions
from storage_engine.tools.local.local_cluster import LocalCluster

BOARDS = Path(__file__).parent / "boards"

NOT_HERE = {
    "jvm_memory_used_bytes": "there is no JVM",
    "jvm_gc_collection_seconds_sum": "there is no JVM",
    "jvm_gc_collection_seconds_count": "there is no JVM",
    "jvm_threads_current": "there is no JVM",
    "container_memory_usage_bytes": "Kubernetes tells it",
    "container_cpu_usage_seconds_total": "Kubernetes tells it",
    "kubelet_volume_stats_available_bytes": "Kubernetes tells it",
}
"""What these boards show beside Kafka's own."""

GIVEN_BY_SCRAPES = {
    "namespace", "strimzi_io_cluster", "strimzi_io_name", "kubernetes_pod_name", "pod",
    "container", "persistentvolumeclaim",
}  # fmt: skip
"""Labels that a scrape in Kubernetes adds."""

NOT_IN_THIS_CLUSTER = {
    "headrace_certificate_expires_days": "it has no TLS",
    "headrace_scrape_errors_total": "no part of a scrape has failed",
}

SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with (
        running_cluster(tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as made,
        busy(made),
    ):
        yield made


@pytest.fixture(scope="module")
def figures(cluster) -> Figures:
    def all_told() -> Figures | None:
        found = scrape(cluster)
        seconds = found.get("kafka_consumergroup_lag_seconds", [])
        return found if len(seconds) == 1 and "headrace_sink_last_batch" in found else None

    return wait_until(all_told, "the group and the sink are told")


@pytest.mark.parametrize("board", ["strimzi-kafka.json", "strimzi-kafka-exporter.json"])
def test_each_expression_of_a_public_board_finds_its_series_and_labels(figures, board):
    stated = list(expressions(json.loads((BOARDS / board).read_text())))
    assert len(stated) > 15
    missing, found = set(), 0
    for expression in stated:
        named = [
            (name, set(MATCHER.findall(inner))) for name, inner in SELECTOR.findall(expression)
        ]
        for grouped in GROUPING.findall(expression):
            labels = {each.strip() for each in grouped.split(",")}
            named = [(name, matched | labels) for name, matched in named]
        assert named, expression
        for name, labels in named:
            if name in NOT_HERE:
                continue
            if name not in figures:
                missing.add(name)
                continue
            found += 1
            unknown = labels - GIVEN_BY_SCRAPES - set(figures[name][0].labels)
            assert not unknown, f"{name} has no label {unknown}"
    assert not missing
    assert found > 15


def test_every_name_of_the_document_is_served_and_no_other(figures):
    documented = set(PROCESS_NAMES)
    for row in CATALOG:
        ends = ("_bucket", "_sum", "_count") if row.kind is HISTOGRAM else ("",)
        documented |= {row.name + end for end in ends}
    assert figures.keys() <= documented
    assert documented - figures.keys() == NOT_IN_THIS_CLUSTER.keys()


def test_each_sample_has_the_labels_of_the_document(figures):
    for row in CATALOG:
        for sample in figures.get(row.name, ()):
            assert tuple(sample.labels) == row.labels, row.name


def test_openmetrics_has_the_same_names(cluster, figures):
    assert scrape(cluster, accept=OPEN_METRICS).keys() == figures.keys()


def test_the_figures_are_what_clients_have_done(figures):
    topics = "kafka_server_brokertopicmetrics"
    assert total(figures, f"{topics}_messagesin_total", topic=TOPIC) == SENT
    assert total(figures, f"{topics}_bytesin_total", topic=TOPIC) == total(
        figures, "headrace_bytes_in_total", codec="lz4"
    )
    assert total(figures, f"{topics}_bytesout_total", topic=TOPIC) > 0
    replicated = total(figures, f"{topics}_replicationbytesin_total")
    assert replicated >= 2 * total(figures, f"{topics}_bytesin_total", topic=TOPIC)
    requests = "kafka_network_requestmetrics_requests_total"
    fetches = total(figures, requests, request="FetchConsumer")
    assert fetches > 0
    assert total(figures, requests, request="Fetch") == fetches + total(
        figures, requests, request="FetchFollower"
    )
    assert total(figures, "kafka_log_log_logendoffset", topic=TOPIC, partition="0") == 3 * SENT
    assert total(figures, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(figures, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def test_lag_is_told_in_records_and_seconds(figures):
    where = {"consumergroup": GROUP, "topic": TOPIC, "partition": "0"}
    assert total(figures, "kafka_consumergroup_current_offset", **where) == READ
    assert total(figures, "kafka_consumergroup_lag", **where) == SENT - READ
    assert 0 < total(figures, "kafka_consumergroup_lag_seconds", **where) < 300
    assert total(figures, "kafka_consumergroup_members", consumergroup=GROUP) == 1


def test_what_readers_wait_for_is_told_with_its_age(figures):
    where = {"topic": OPEN_TOPIC, "partition": "1"}
    assert total(figures, "kafka_cluster_partition_laststableoffsetlag", **where) == 1
    assert 0 < total(figures, "headrace_partition_open_transaction_seconds", **where) < 300
    assert total(figures, "headrace_transactions", state="ongoing") == 1
    assert total(figures, "headrace_transactions_oldest_open_seconds") > 0


def test_sinks_are_told_with_what_is_committed_and_what_waits(figures):
    assert total(figures, "headrace_sink_committed_batches_total") == 1
    assert total(figures, "headrace_sink_last_batch", sink=SINK, query=QUERY) == 0
    assert total(figures, "headrace_sink_open_members", sink=SINK) == 1
    assert total(figures, "headrace_sink_batches_waiting", sink=SINK) == 1
