"""Failovers of many partitions, interrupted at the worst moment: an order is carried out in several
turns, and the states are written in several multis."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.order_gate import STEPS_PER_TURN
from storage_engine.broker.controller.store import PARTITIONS_PER_MULTI
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import controlled_shutdown
from storage_engine.tests.broker.support import cluster_fixture

COUNT = PARTITIONS_PER_MULTI + 2 * STEPS_PER_TURN + 3
EVERY = [TopicPartition("t", number) for number in range(COUNT)]


def make_topic(cluster: SimulatedCluster) -> None:
    assert cluster.create_topic("t", COUNT).error_code == 0
    for tp in EVERY:
        assert cluster.produced(tp, b"first") == 0
    wait_in_sync(cluster)


cluster = cluster_fixture(prepare=make_topic)


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
