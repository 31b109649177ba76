"""A broker of the present version opens the log dir of a release: records, offsets, schemas
and the state of producers are as before. Source: R-LOG1."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from integration_tests.kept_data.kept_cluster import RELEASES, running_kept_cluster, unpack
from integration_tests.kept_data.make import GROUP, TYPED, UNFINISHED, describe
from integration_tests.support.cluster_support import DEADLINE_S
from integration_tests.support.spark_support import consume
from storage_engine.client import Admin
from storage_engine.core.ids import TopicPartition
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.tests.log.support import ManualClock
from storage_engine.tools.local.local_cluster import LocalCluster


@pytest.fixture(scope="module", params=RELEASES)
def kept(request, tmp_path_factory) -> Iterator[tuple[LocalCluster, dict[str, Any]]]:
    with running_kept_cluster(request.param, tmp_path_factory.mktemp("kept")) as running:
        yield running


@pytest.fixture
def cluster(kept) -> LocalCluster:
    return kept[0]


def test_records_and_offsets_are_as_before(kept):
    cluster, before = kept
    now = describe(cluster.bootstrap_servers)
    for partition in before.values():
        # A broker forgets producers after some days; the log's own test is below.
        del partition["producers"]
    assert {tp: {key: now[tp][key] for key in kept} for tp, kept in before.items()} == before


def test_schema_and_offsets_of_a_group_are_as_before(cluster):
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        known = admin.describe_schemas([TYPED])[TYPED]
        committed = admin.group_offsets(GROUP)
    assert known is not None and known.schema.latest.version == 2
    assert [each.name for each in known.schema.latest.visible] == ["id", "name", "place"]
    assert committed == {TopicPartition("orders", 1): 7}


def test_a_transaction_that_was_open_ends_by_its_timeout(cluster):
    assert consume(cluster.bootstrap_servers, UNFINISHED) == []
    rows = consume(cluster.bootstrap_servers, UNFINISHED, isolation="read_uncommitted")
    assert [row.value() for row in rows] == [b"row"]


def test_a_transactional_producer_goes_on(cluster):
    servers = cluster.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "kept"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("transactional", b"after")
    producer.commit_transaction(DEADLINE_S)
    assert [row.value() for row in consume(servers, "transactional")][-1] == b"after"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("clean", [True, False], ids=["snapshot", "recovery"])
def test_a_log_knows_its_producers(release, clean, tmp_path):
    described = unpack(release, tmp_path)
    with_producers = {name: each for name, each in described.items() if each["producers"]}
    assert with_producers
    for name, kept in with_producers.items():
        tp = TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2]))
        # Much later it would have forgotten them.
        clock = ManualClock(max(each["last_timestamp_ms"] for each in kept["producers"]))
        folder, start = tmp_path / "broker" / name, LogStart(clean=clean)
        log = PartitionLog.open(folder, tp, LogConfig(), start, clock=clock)
        assert (log.log_start_offset, log.log_end_offset) == (
            kept["log_start_offset"],
            kept["log_end_offset"],
        )
        found = [
            (each.producer_id, each.epoch, each.batches[-1].last_sequence)
            for each in log.producer_state
        ]
        assert sorted(found) == [
            (each["producer_id"], each["epoch"], each["last_sequence"])
            for each in kept["producers"]
        ]
        log.close()
