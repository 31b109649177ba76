"""A request of a transaction whose partitions are verified one after another."""

from collections.abc import Callable

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import ANSWER_MS, make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT
from storage_engine.tests.broker.support import cluster_fixture

FIRST, SECOND = TopicPartition("a", 0), TopicPartition("b", 0)


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions="3",
    auto_leader_rebalance_enable="false",
    min_insync_replicas="2",
)


def lead(cluster: SimulatedCluster, tp: TopicPartition, *replicas: int) -> None:
    """Have the first of them lead."""
    prefer(cluster, tp, *replicas)
    cluster.answer(cluster.elect_preferred(tp))
    partition = cluster[replicas[0]].replicas.get(tp)
    cluster.loop.run_until(lambda: partition.leader is not None)


def prefer(cluster: SimulatedCluster, tp: TopicPartition, *replicas: int) -> None:
    """Have the first of them be the preferred one; who leads, leads on."""
    cluster.wait_in_sync(tp, 1, 2, 3)
    cluster.answer(cluster.reassign(tp, replicas))
    cluster.loop.run_for(2_000)


def batch(producer: SimulatedProducer, tp: TopicPartition, sequence: int) -> ProducePartition:
    number = producer.producer_id, producer.epoch, sequence
    data = make_batch(payload=b"x", producer=number, attributes=TRANSACTIONAL_BIT)
    return ProducePartition(*tp, data)


def test_a_batch_is_not_acknowledged_when_another_broker_led_meanwhile(cluster, monkeypatch):
    assert cluster.controller is not None
    controller = cluster.controller.id
    leader, third = sorted({1, 2, 3} - {controller})
    lead(cluster, FIRST, leader, controller, third)
    lead(cluster, SECOND, leader, controller, third)
    prefer(cluster, FIRST, controller, leader, third)
    assert cluster.state(FIRST).leader == leader
    producer = SimulatedProducer(cluster, "p")
    producer.init()
    producer.add(FIRST, SECOND)
    producer.write(FIRST, b"opens the guard")
    broker = cluster[leader]
    held: list[Callable[[ErrorCode], None]] = []
    verifier = broker.parts.coordinators.verifier
    monkeypatch.setattr(verifier, "verify", lambda *given, **_: held.append(given[-1]))
    for other in (controller, third):
        cluster.network.cut(leader, other)
    batches = [batch(producer, FIRST, 1), batch(producer, SECOND, 0)]
    answers = cluster.ask(leader, PRODUCE, 8, ProduceRequest("p", -1, ANSWER_MS, batches))
    cluster.loop.run_until(lambda: bool(held))
    lost = broker.replicas.get(FIRST).log.log_end_offset - 1
    # Nobody else has the first batch; another broker leads, and has something else there.
    cluster.elect_preferred(FIRST)
    cluster.loop.run_until(lambda: cluster.state(FIRST).leader == controller)
    cluster.network.heal()
    producer.end(commits=False)
    lead(cluster, FIRST, leader, controller, third)
    cluster.loop.run_for(2_000)
    assert broker.replicas.get(FIRST).high_watermark > lost
    assert not answers
    for on_verified in held:
        on_verified(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    row = cluster.answer(answers).partitions[0]
    assert ErrorCode.of(row.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
