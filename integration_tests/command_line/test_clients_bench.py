"""`headrace bench clients`: what other people's clients do on our brokers.

The full run has the command itself, beside Apache Kafka, where its jars have been fetched; it
leaves nothing behind.
"""

import json

import pytest

from benchmarks.arguments import default_folder
from benchmarks.beside_kafka import topics
from benchmarks.beside_kafka.jars import KAFKA, KAFKA_TOOLS
from benchmarks.clients import librdkafka
from benchmarks.clients.loads import JAVA, PARTITIONS, REQUESTS, ROWS, loads_of
from benchmarks.support.brokers import Brokers
from integration_tests.support.cluster_support import running_cluster
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main

pytest.importorskip("confluent_kafka")

RECORDS = 500
HAS_KAFKA = all((default_folder() / jars.folder).is_dir() for jars in (KAFKA, KAFKA_TOOLS))


def test_latencies_are_of_every_record_and_what_was_produced_is_consumed(tmp_path):
    with running_cluster(tmp_path, brokers=3) as cluster:
        pids = [broker.pid for broker in cluster.state.brokers if broker.pid is not None]
        brokers = Brokers(cluster.bootstrap_servers, pids)
        with topics.target(brokers.bootstrap_servers, "steady", PARTITIONS):
            figures = librdkafka.request_latencies(brokers, "steady", 100, 1)
        assert [name.removeprefix("requests-100-") for name in figures] == [
            *("ack-p50", "ack-p99", "read-p50", "read-p99", "cpu")
        ]
        assert all(figure > 0 for figure in figures.values())
        with topics.target(brokers.bootstrap_servers, "fast", PARTITIONS):
            (load, *_) = loads_of("librdkafka", RECORDS)
            assert librdkafka.produce(brokers.bootstrap_servers, "fast", load) > 0
            topics.check_rows(brokers.bootstrap_servers, "fast", PARTITIONS, RECORDS)
            assert librdkafka.consume(brokers.bootstrap_servers, "fast", RECORDS) > 0


@in_full
@pytest.mark.skipif(not HAS_KAFKA, reason="`headrace bench clients` has not fetched Kafka")
def test_every_row_of_the_groups_asked_for_has_the_figures_of_both_sides(tmp_path, capsys):
    groups = (REQUESTS, JAVA)
    small = ["--rows", "2000", "--rounds", "1", "--seconds", "1", "--dir", str(tmp_path)]
    asked = [argument for group in groups for argument in ("--only", group)]
    assert main(["bench", "clients", *asked, *small, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["name"] for result in results] == [
        row.name for row in ROWS if row.group in groups
    ]
    for result in results:
        assert result["headrace"] > 0 and result["kafka"] > 0
        is_produced = "produces" in result["what"] or "acknowledged" in result["what"]
        assert (result["client_alone"] is None) != is_produced
    assert not list(tmp_path.iterdir()), "it cleans up after itself"
