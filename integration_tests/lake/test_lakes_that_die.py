"""Whatever dies, and whenever: each row is in the table once, and none is missing."""

import random
import signal
import time

import pytest

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
from integration_tests.lake.writers import COLUMNS, DDL, TYPED, SteadyTransactions
from integration_tests.support.cluster_support import create_topic, make_whole, wait_until
from storage_engine.client import Admin
from storage_engine.tests.sampling import ALL_FAULTS, SEED

PARTITIONS = 4
KILLS = 100 if ALL_FAULTS else 6
SHORT = {**TABLE, "headrace.table.commit.interval.ms": "100"}


def table_has_all(cluster, place, topic, lake) -> None:
    """Once nothing is written any more."""
    log = typed_log(cluster, topic, COLUMNS)
    wait_for_rows(place, log.num_rows, lake)
    assert_equal(table_at(place), log)


def test_a_lake_is_killed_at_random_moments(cluster, tmp_path, topic):
    create_topic(cluster, topic, partitions=PARTITIONS, config={**SHORT, **TYPED})
    moments = random.Random(SEED)
    with lakes(cluster, tmp_path, topic) as (lake,):
        place = lake.root / topic
        with SteadyTransactions(cluster, topic, rows_each=500, pause_s=0.01):
            before = 0
            for _ in range(KILLS):
                # Each instance gets as far as to a commit; the moment is any after it.
                wait_for_rows(place, before + 1, lake)
                time.sleep(moments.uniform(0, 0.5))
                lake.kill()
                before = rows_in(place)
                lake.start()
        table_has_all(cluster, place, topic, lake)


def test_brokers_are_killed_while_two_lakes_share_a_topic(cluster, tmp_path, topic):
    create_topic(cluster, topic, partitions=PARTITIONS, config={**SHORT, **TYPED})
    moments = random.Random(SEED)
    with lakes(cluster, tmp_path, topic, count=2) as both:
        place = both[0].root / topic
        with SteadyTransactions(cluster, topic, rows_each=200, pause_s=0.02) as writer:
            for number in range(6 if ALL_FAULTS else 2):
                before = writer.committed
                broker = moments.choice(cluster.state.brokers).id
                cluster.kill_broker(broker)
                wait_until(lambda: writer.committed > before, "rows are written on")  # noqa: B023
                both[number % 2].kill()
                both[number % 2].start()
                make_whole(cluster)
        table_has_all(cluster, place, topic, both[0])


def test_a_lake_that_slept_through_its_end_writes_nothing_any_more(cluster, tmp_path, topic):
    """It is stopped while it reads and commits; another one takes over and commits; then it wakes
    up with a batch in its hands, believing that all is its own."""
    create_topic(cluster, topic, partitions=PARTITIONS, config={**SHORT, **TYPED})
    with lakes(cluster, tmp_path, topic) as (first,):
        place = first.root / topic
        with SteadyTransactions(cluster, topic, rows_each=500, pause_s=0.01):
            for _ in range(5 if ALL_FAULTS else 2):
                wait_for_rows(place, rows_in(place) + 1, first)
                first.send(signal.SIGSTOP)
                second = LakeUnderFire(cluster, tmp_path, topic, number=1)
                try:
                    second.start()
                    asleep = rows_in(place)
                    wait_for_rows(place, asleep + 5_000, second)
                    first.send(signal.SIGCONT)
                    wait_for_rows(place, rows_in(place) + 5_000, second)
                finally:
                    second.kill()
        table_has_all(cluster, place, topic, first)


def test_two_lakes_share_the_partitions_and_take_over(cluster, tmp_path, topic):
    create_topic(cluster, topic, partitions=PARTITIONS, config={**SHORT, **TYPED})
    with lakes(cluster, tmp_path, topic, count=2) as (first, second):
        place = first.root / topic
        with SteadyTransactions(cluster, topic, rows_each=200, pause_s=0.02):
            wait_for_rows(place, 1_000, first)
            first.kill()
            wait_for_rows(place, rows_in(place) + 5_000, second)
            first.start()
            wait_for_rows(place, rows_in(place) + 5_000, first)
            assert second.end() == 0
            wait_for_rows(place, rows_in(place) + 5_000, first)
        table_has_all(cluster, place, topic, first)


@pytest.mark.parametrize("number", range(2 if ALL_FAULTS else 1))
def test_a_topic_gets_a_column_while_a_lake_is_killed(cluster, tmp_path, topic, number):
    """The table grows before, or with, the first row that has it."""
    create_topic(cluster, topic, partitions=PARTITIONS, config={**SHORT, **TYPED})
    with lakes(cluster, tmp_path, topic) as (lake,):
        place = lake.root / topic
        with SteadyTransactions(cluster, topic, rows_each=200, pause_s=0.01):
            wait_for_rows(place, 1_000, lake)
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                admin.alter_schema(topic, f"{DDL}, note STRING")
            lake.kill()
            lake.start()
            wait_for_rows(place, rows_in(place) + 2_000, lake)
        log = typed_log(cluster, topic, (*COLUMNS, "note"))
        wait_for_rows(place, log.num_rows, lake)
        table = table_at(place)
        assert_equal(table.select(log.column_names), log)
