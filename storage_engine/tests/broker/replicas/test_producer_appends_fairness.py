"""Producers take turns at the threads that prepare batches: large batches of one hold up no small
ones of another, neither to other partitions nor to the same one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT
from storage_engine.broker.replicas import producer_appends
from storage_engine.broker.replicas.producer_appends import (
    LARGE_AT_ONCE,
    LARGE_EACH,
    PREPARED_AT_ONCE,
    WAITER_BYTES,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.principal import ANONYMOUS, Principal
from storage_engine.log import append_rules
from storage_engine.tests.broker.replicas.test_producer_appends import (
    batch_of,
    code_of,
    hold,
    leading,
    send,
)

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
LARGE = batch_of(bytes(100_000))
SMALL = batch_of(b"small")


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[SimulatedCluster]:
    monkeypatch.setattr(producer_appends, "LARGE_BYTES", 10_000)
    made = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    for tp in (FIRST, SECOND):
        assert not made.create_topic(tp.topic, cleanup_policy="compact").error_code
        made.loop.run_until(lambda tp=tp: leading(made, tp) is not None)
        assert code_of([made.answer(send(made, tp, SMALL))]) is ErrorCode.NONE
    yield made
    made.close()


@pytest.fixture
def stuck(cluster, monkeypatch) -> list[Callable[[], Any]]:
    """The large appends whose preparation has begun; none of them ends."""
    begun: list[Callable[[], Any]] = []

    class Stuck:
        def submit(self, work, _on_done, _on_error) -> None:
            begun.append(work)

    threads = cluster[1].parts.replicas.producer_appends._threads_for_large
    monkeypatch.setattr(threads, "background", Stuck())
    return begun


def come_as(cluster: SimulatedCluster, name: str) -> None:
    cluster.network.principals[CLIENT] = ANONYMOUS if name == "anybody" else Principal(name)


@pytest.mark.parametrize("other", ["anybody", "other"])
def test_a_small_append_waits_for_no_large_one(cluster, stuck, other) -> None:
    come_as(cluster, "anybody")
    waiting = [send(cluster, FIRST, LARGE, acks=1) for _ in range(20)]
    cluster.loop.run_for(1000)
    come_as(cluster, other)
    assert code_of([cluster.answer(send(cluster, SECOND, SMALL, acks=1))]) is ErrorCode.NONE
    assert not any(waiting) and len(stuck) == LARGE_EACH


def test_another_principal_does_not_wait_at_the_same_partition_either(cluster, stuck) -> None:
    come_as(cluster, "crowd")
    waiting = [send(cluster, FIRST, LARGE, acks=1) for _ in range(20)]
    waiting += [send(cluster, FIRST, SMALL, acks=1)]
    cluster.loop.run_for(1000)
    come_as(cluster, "other")
    assert code_of([cluster.answer(send(cluster, FIRST, SMALL, acks=1))]) is ErrorCode.NONE
    assert not any(waiting), "appends of one principal to a partition keep their order"


def test_a_principal_never_has_all_threads_for_large_appends(cluster, stuck) -> None:
    for name in ("crowd", "other"):
        come_as(cluster, name)
        for _ in range(20):
            send(cluster, FIRST, LARGE, acks=1)
        cluster.loop.run_for(1000)
    assert len(stuck) == LARGE_AT_ONCE
    assert stuck[LARGE_EACH - 1] is not stuck[LARGE_EACH]


def test_whoever_comes_later_is_prepared_before_the_many_of_another(cluster, monkeypatch) -> None:
    prepared: list[int] = []
    original = append_rules.prepare

    def noted(records, *args, **kwargs):
        prepared.append(len(records))
        return original(records, *args, **kwargs)

    monkeypatch.setattr(producer_appends, "prepare", noted)
    hold(cluster[1])
    come_as(cluster, "crowd")
    crowd = [send(cluster, FIRST, SMALL, acks=1) for _ in range(30)]
    cluster.loop.run_for(100)
    come_as(cluster, "other")
    own = batch_of(b"of another size")
    answer = send(cluster, SECOND, own, acks=1)
    cluster.loop.run_for(100)
    cluster[1].loop.release()
    assert code_of([cluster.answer(answer)]) is ErrorCode.NONE
    assert prepared.index(len(own)) <= PREPARED_AT_ONCE
    cluster.loop.run_until(lambda: all(crowd))
    assert len(prepared) == 31


def test_a_large_append_is_stored_like_a_small_one(cluster) -> None:
    """It is tried as a small one, and prepared again."""
    answer = cluster.answer(send(cluster, FIRST, LARGE, acks=1))
    assert code_of([answer]) is ErrorCode.NONE
    assert answer.partitions[0].base_offset == 1


def test_waiting_appends_of_one_leave_room_for_those_of_others(cluster, stuck) -> None:
    cluster[1].parts.replicas.producer_appends._room.most = 100 * (len(LARGE) + WAITER_BYTES)
    come_as(cluster, "crowd")
    waiting = [send(cluster, FIRST, LARGE, acks=1) for _ in range(100)]
    cluster.loop.run_for(1000)
    refused = [each for each in waiting if each]
    assert {code_of(each) for each in refused} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    assert len(refused) == 50
    come_as(cluster, "other")
    assert code_of([cluster.answer(send(cluster, SECOND, SMALL, acks=1))]) is ErrorCode.NONE
