"""Failovers of many partitions, interrupted at the worst moment: an order is carried out in several
turns, and the states are written in several multis."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation.world.clock import SimulatedLoop
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import (
    STEPS_PER_TURN,
    NamedReplicas,
    OrderGate,
    Orders,
)
from storage_engine.broker.controller.store import PARTITIONS_PER_MULTI
from storage_engine.broker.handlers.controller.orders import FullOrders, LeaderAndIsrHandler
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import MetadataStore
from storage_engine.protocol.apis import controlled_shutdown
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrRequest

COUNT = PARTITIONS_PER_MULTI + 2 * STEPS_PER_TURN + 3
EVERY = [TopicPartition("t", number) for number in range(COUNT)]


@pytest.fixture
def cluster(tmp_path):
    made = SimulatedCluster(tmp_path)
    assert made.create_topic("t", COUNT).error_code == 0
    for tp in EVERY:
        assert made.produced(tp, b"first") == 0
    wait_in_sync(made)
    yield made
    made.close()


def wait_in_sync(cluster: SimulatedCluster) -> None:
    for tp in EVERY:
        cluster.wait_in_sync(tp, 1, 2, 3, limit_ms=120_000)


def led_by(cluster: SimulatedCluster, broker: int) -> list[TopicPartition]:
    return [tp for tp in EVERY if cluster.state(tp).leader == broker]


def taken_over(cluster: SimulatedCluster, broker: int, partitions: list[TopicPartition]) -> int:
    """How many of them the broker itself knows that it leads."""
    found = [cluster[broker].replicas.get(tp) for tp in partitions]
    return sum(1 for partition in found if partition is not None and partition.leader is not None)


def everything_is_written_to_and_in_sync(cluster: SimulatedCluster) -> None:
    for tp in EVERY:
        assert cluster.produced(tp, b"second") >= 1
    for broker in cluster.brokers:
        if not broker.up:
            broker.start()
    wait_in_sync(cluster)


def test_a_controller_that_dies_between_the_writes_of_a_failover_is_carried_on(cluster):
    controller = cluster.controller
    dead = next(b for b in (1, 2, 3) if b != controller.id and led_by(cluster, b))
    lost = led_by(cluster, dead)
    cluster[dead].kill()
    cluster.loop.run_until(lambda: len(led_by(cluster, dead)) < len(lost))
    controller.kill()
    cluster[dead].start()
    everything_is_written_to_and_in_sync(cluster)


def test_a_new_leader_that_dies_in_the_middle_of_an_order_is_replaced(cluster):
    dead = cluster.controller.id % 3 + 1
    lost = led_by(cluster, dead)
    heir = next(b for b in (1, 2, 3) if b not in (dead, cluster.controller.id))
    cluster[dead].kill()
    cluster.loop.run_until(lambda: taken_over(cluster, heir, lost) > 0)
    cluster[heir].kill()
    cluster[dead].start()
    everything_is_written_to_and_in_sync(cluster)


class Replicas:
    """A replica manager that only counts."""

    def __init__(self) -> None:
        self.applied = 0
        self.lease = LeaderLease(lambda: True)
        self.lease.fence()
        self.woken = 0
        self.postponed = SimpleNamespace(forget_all=lambda: None)

    def apply_leadership(self, _item: object, _endpoints: object) -> ErrorCode:
        self.applied += 1
        return ErrorCode.NONE

    def roles_taken(self) -> None:
        self.woken += 1


@pytest.mark.parametrize("newer_controller", [False, True])
def test_an_order_ends_with_the_session_or_the_controller_that_it_is_of(newer_controller):
    """The rest of it was meant for a former incarnation: it must not lift the fence of the next."""
    loop, replicas, epoch = SimulatedLoop(), Replicas(), [7]
    answers: list[Any] = []
    gate = OrderGate(cast(MetadataStore, None), lambda: BrokerEpoch(epoch[0]))
    gate.controller_epoch, gate.controller_id = ControllerEpoch(1), BrokerId(1)
    handler = LeaderAndIsrHandler(
        replicas=replicas,
        metadata=MetadataCache(),
        order_gate=gate,
        full_orders=FullOrders(
            broker_id=BrokerId(2),
            replicas=replicas,
            metadata=MetadataCache(),
            orphaned_logs=None,
            named=NamedReplicas(),
        ),
        orders=Orders(SimpleNamespace(ensure=lambda _topics, done: done()), loop),
    )
    request = LeaderAndIsrRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
        broker_epoch=BrokerEpoch(7),
        partitions=[SimpleNamespace(topic="t", partition=n) for n in range(COUNT)],
        live_leaders=[],
        full=True,
    )
    call = SimpleNamespace(
        respond=answers.append,
        connection=SimpleNamespace(number=0),
        refusal=lambda: ErrorCode.NONE,
    )
    handler.handle(call, request)
    loop.run_until(lambda: replicas.applied > 0)
    assert replicas.applied < COUNT
    if newer_controller:
        gate.controller_epoch = ControllerEpoch(2)
    else:
        epoch[0] = 8
    applied = replicas.applied
    loop.run_for(10)
    (answer,) = answers
    refusal = ErrorCode.STALE_CONTROLLER_EPOCH if newer_controller else ErrorCode.STALE_BROKER_EPOCH
    assert ErrorCode.of(answer.error_code) is refusal
    assert (replicas.applied, replicas.lease.is_fenced, replicas.woken) == (applied, True, 1)


def test_acks_all_does_not_wait_for_the_end_of_a_followers_long_poll(cluster):
    """A follower that already polls the new leader asks at once for what it is told to follow."""
    leaving = cluster.controller.id % 3 + 1
    moved = led_by(cluster, leaving)
    request = controlled_shutdown.ControlledShutdownRequest(
        broker_id=leaving, broker_epoch=cluster[leaving].broker_epoch
    )
    cluster.ask(cluster.controller.id, controlled_shutdown.API, 0, request)
    cluster.loop.run_until(lambda: not led_by(cluster, leaving))
    now_leads = cluster.state(moved[-1]).leader
    cluster.loop.run_until(lambda: taken_over(cluster, now_leads, [moved[-1]]) == 1)
    answer = cluster.answer(cluster.produce(now_leads, moved[-1], b"second"), limit_ms=250)
    assert answer.partitions[0].error_code == 0
