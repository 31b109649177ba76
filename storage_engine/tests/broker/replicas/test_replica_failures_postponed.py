"""Leadership that had to wait for descriptors and can't be taken up then: the controller hears of
it, and nothing else is lost (R-CTL3)."""

from typing import Any

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker import unexpected
from storage_engine.broker.replicas.hosted_partition import Role
from storage_engine.core.errors import LogShortageError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture

PARTITIONS = [TopicPartition("made", number) for number in range(4)]


class OurBugError(Exception):
    """Nothing that the program knows of."""


cluster = cluster_fixture(
    brokers=2, default_replication_factor="2", auto_leader_rebalance_enable="false"
)


def make_topic(cluster: SimulatedCluster) -> None:
    assert cluster.create_topic("made", partitions=len(PARTITIONS)).error_code == 0
    assert {cluster.state(tp).leader for tp in PARTITIONS} == {1, 2}


def test_another_broker_leads_what_could_not_be_opened_at_the_second_try(cluster, monkeypatch):
    first = cluster[1].logs
    get_or_create = first.get_or_create
    tries: dict[TopicPartition, int] = {}

    def refuse(tp: TopicPartition, *args: Any, **options: Any) -> Any:
        if tp not in PARTITIONS:
            return get_or_create(tp, *args, **options)
        tries[tp] = tries.get(tp, 0) + 1
        if tries[tp] == 1:
            raise LogShortageError("no descriptors")
        raise LogStorageError("not a directory")

    monkeypatch.setattr(first, "get_or_create", refuse)
    make_topic(cluster)
    cluster.loop.run_until(
        lambda: {cluster.state(tp).leader for tp in PARTITIONS} == {2}, limit_ms=10_000
    )
    for tp in PARTITIONS:
        assert cluster.produced(tp, b"record") == 0


def test_an_exception_in_one_order_keeps_no_other_from_being_carried_out(
    cluster, monkeypatch, caplog
):
    monkeypatch.setattr(unexpected, "is_fatal", False)
    replicas = cluster[1].replicas
    hosted = replicas._open
    tries: dict[TopicPartition, int] = {}

    def fail_once(tp: TopicPartition, item: Any) -> Any:
        if tp in PARTITIONS:
            tries[tp] = tries.get(tp, 0) + 1
            if tries[tp] == 1:
                raise LogShortageError("no descriptors")
            if tp == min(tries) and tries[tp] == 2:
                raise OurBugError("of the test")
        return hosted(tp, item)

    monkeypatch.setattr(replicas, "_open", fail_once)
    make_topic(cluster)
    cluster.loop.run_until(
        lambda: all(replicas.get(tp) is not None for tp in PARTITIONS), limit_ms=10_000
    )
    traced = [each for each in caplog.records if each.exc_info and each.exc_info[0] is OurBugError]
    assert len(traced) == 1
    for tp in PARTITIONS:
        leader = cluster.state(tp).leader
        assert replicas.get(tp).role is (Role.LEADER if leader == 1 else Role.FOLLOWER)
        # What is followed is fetched.
        assert cluster.produced(tp, b"record") == 0
        cluster.wait_in_sync(tp, 1, 2)
