"""A store that is slow, away, throttled, lies about what became of a request, or refuses the
instance: the table equals the log all the same, and the lake tells no stack trace."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_lake.delta.compaction import compact
from headrace_lake.delta.store import TableStore
from headrace_lake.delta.table import LakeTable, LakeTopic
from headrace_lake.delta.upkeep import TableUpkeep, UpkeepSettings
from headrace_lake.reading.rows import rows_of
from headrace_lake.service.table_writer import shape_of
from headrace_lake.tests.faulty_store import BUCKET, OPTIONS, FaultyStore, faulty_store
from integration_tests.lake.lakes import (
    TABLE,
    LakeUnderFire,
    assert_equal,
    lakes,
    rows_in,
    table_at,
    typed_log,
    wait_for_rows,
)
from integration_tests.lake.writers import COLUMNS, TYPED, SteadyTransactions
from integration_tests.support.cluster_support import create_topic, make_whole, wait_until
from integration_tests.support.fault_proxy import FaultProxy
from storage_engine.client.cluster import Cluster
from storage_engine.tests.sampling import ALL_FAULTS, SEED, in_full

STRUCK = 5
"""Requests that meet a fault before it is healed."""
CUT_S = 2
KILLS = 100
ROUNDS = 4 if ALL_FAULTS else 1


class FailingStore:
    """The store of a lake, and ways to break it."""

    def __init__(self, faults: FaultyStore, network: FaultProxy, config: Path) -> None:
        self.faults = faults
        self.network = network
        self.config = config
        self._is_cut = False

    def fail(self, how: str) -> None:
        match how:
            case "slow":
                self.faults.is_slow = True
            case "away":
                self.faults.is_away = True
            case "throttled":
                self.faults.throttled_share = 0.7
            case "answers are lost":
                self.faults.lost_answers = STRUCK
            case "refuses the key":
                self.faults.is_forbidden = True
            case "connections break":
                self._is_cut = True
                self.network.cut()

    def wait_until_met(self) -> None:
        """Until the lake has felt it."""
        if self._is_cut:
            # What is under way breaks at once, and what comes is refused.
            time.sleep(CUT_S)
            return
        wait_until(lambda: self.faults.struck >= STRUCK, "the store's fault is met")

    def heal(self) -> None:
        self._is_cut = False
        self.faults.heal()
        self.network.heal()


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[FailingStore]:
    with faulty_store() as (sound, faulty, faults):
        # Of the test, which reads by the sound way, and of the lake, whose file counts above it.
        for name, value in {**OPTIONS, "AWS_ENDPOINT_URL": sound}.items():
            monkeypatch.setenv(name, value)
        host, port = faulty.removeprefix("http://").split(":")
        with FaultProxy((host, int(port))) as network:
            config = tmp_path / "lake.conf"
            options = {**OPTIONS, "AWS_ENDPOINT_URL": f"http://{network.address}"}
            config.write_text("".join(f"store.{k.lower()}={v}\n" for k, v in options.items()))
            yield FailingStore(faults, network, config)


def table_has_all(cluster, place: str, topic: str, lake: LakeUnderFire) -> None:
    log = typed_log(cluster, topic, COLUMNS)
    wait_for_rows(place, log.num_rows, lake)
    assert_equal(table_at(place), log)


@pytest.mark.parametrize(
    "faults",
    [
        ("slow", "answers are lost", "throttled"),
        ("away", "connections break", "refuses the key"),
    ],
    ids=["unreliable", "gone"],
)
def test_a_table_equals_its_log_whatever_the_store_does(cluster, tmp_path, topic, store, faults):
    create_topic(cluster, topic, partitions=2, config={**TABLE, **TYPED})
    root = f"s3://{BUCKET}/{topic}"
    options = ("--root", root, "--config", str(store.config))
    with lakes(cluster, tmp_path, topic, *options) as (lake,):
        place = f"{root}/{topic}"
        with SteadyTransactions(cluster, topic, rows_each=50, pause_s=0.05):
            wait_for_rows(place, 1, lake)
            for fault in faults * ROUNDS:
                store.fail(fault)
                store.wait_until_met()
                if ALL_FAULTS:
                    lake.kill()
                    lake.start()
                before = rows_in(place)
                store.heal()
                wait_for_rows(place, before + 50, lake)
        table_has_all(cluster, place, topic, lake)
        told = lake.told()
    assert "Traceback" not in told


def put_together_and_expire(cluster, place: str, topic: str) -> None:
    """Have the upkeep do all that it may, as if a week were over."""
    with Cluster(cluster.bootstrap_servers) as asked:
        rows = rows_of(asked, topic)
    options = {**OPTIONS, "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}
    table = LakeTable.open(
        TableStore(place, options),
        LakeTopic(name=topic, topic_id=rows.topic_id),
        shape_of(rows, ()),
    )
    assert compact(table, whole_tail=True).files_after
    upkeep = TableUpkeep(table, UpkeepSettings(safe_hours=0))
    upkeep.checkpoint()
    assert upkeep.sweep()


@in_full
def test_lake_brokers_and_store_die_a_hundred_times(cluster, tmp_path, topic, store):
    create_topic(cluster, topic, partitions=4, config={**TABLE, **TYPED})
    moments = random.Random(SEED)
    root = f"s3://{BUCKET}/{topic}"
    options = ("--root", root, "--config", str(store.config))
    with lakes(cluster, tmp_path, topic, *options) as (lake,):
        place = f"{root}/{topic}"
        with SteadyTransactions(cluster, topic, rows_each=500, pause_s=0.02):
            before = 0
            for _ in range(KILLS):
                wait_for_rows(place, before + 1, lake)
                time.sleep(moments.uniform(0, 0.5))
                match moments.choice(("lake", "lake", "broker", "store")):
                    case "lake":
                        lake.kill()
                        lake.start()
                    case "broker":
                        cluster.kill_broker(moments.choice(cluster.state.brokers).id)
                        make_whole(cluster)
                    case "store":
                        store.faults.lost_share = 0.5
                        time.sleep(moments.uniform(0, 0.5))
                        store.fail("connections break")
                        time.sleep(moments.uniform(0, 1))
                        store.heal()
                before = rows_in(place)
        table_has_all(cluster, place, topic, lake)
        lake.end()
        put_together_and_expire(cluster, place, topic)
        assert_equal(table_at(place), typed_log(cluster, topic, COLUMNS))
