"""Real brokers over a simulated ZooKeeper and network: failover, sessions, incarnations."""

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.handlers.administration.metadata import MAX_WAIT_MS
from storage_engine.core.control.planned_changes import LEAST_IN_WAVE
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import controlled_shutdown, metadata
from storage_engine.protocol.apis.metadata import MetadataRequest, MetadataResponse
from storage_engine.protocol.messages import describe_cluster
from storage_engine.protocol.messages.describe_cluster import DescribeClusterRequest
from storage_engine.tests.broker.support import code_of
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode

TP = TopicPartition("t", 0)


def log_of(cluster: SimulatedCluster, broker: int):
    return cluster[broker].logs.logs[TP]


def contents(cluster: SimulatedCluster, broker: int) -> bytes:
    log = log_of(cluster, broker)
    piece = log.reads.read(log.log_start_offset, max_bytes=1 << 20)
    return bytes(piece.view()) if piece is not None else b""


def test_a_waiting_fetch_is_answered_by_the_next_record(topic):
    answers = topic.fetch(topic.state(TP).leader, TP, 1, wait_ms=30_000)
    topic.loop.run_for(1000)
    assert not answers
    topic.produced(TP, b"second")
    assert b"second" in bytes(topic.answer(answers, limit_ms=100).partitions[0].records)


def test_a_dead_leader_is_replaced_and_follows_when_it_returns(topic):
    leader = topic.state(TP).leader
    topic[leader].kill()
    assert topic.produced(TP, b"second") == 1
    assert topic.state(TP).leader != leader
    topic[leader].start()
    topic.wait_in_sync(TP, 1, 2, 3)
    assert contents(topic, 1) == contents(topic, 2) == contents(topic, 3)


def test_a_leader_that_is_restarted_at_once_does_not_lead_on(topic):
    before = topic.state(TP)
    topic[before.leader].kill(session_ends_at_once=True)
    topic[before.leader].start()
    topic.loop.run_until(lambda: topic.state(TP).leader_epoch > before.leader_epoch)
    assert topic.state(TP).leader != before.leader
    assert topic.produced(TP, b"second") == 1
    topic.wait_in_sync(TP, 1, 2, 3)


def test_a_restart_of_the_whole_cluster_renews_every_leadership_and_loses_nothing(topic):
    before = topic.state(TP)
    for broker in topic.brokers:
        broker.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    for broker in topic.brokers:
        broker.start()
    assert topic.produced(TP, b"second") == 1
    assert topic.state(TP).leader_epoch > before.leader_epoch
    topic.wait_in_sync(TP, 1, 2, 3)


def test_a_leader_cut_off_from_zookeeper_acknowledges_nothing_after_its_lease(topic):
    leader = topic.state(TP).leader
    topic[leader].session.cut_off()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1)
    answer = topic.answer(topic.produce(leader, TP, b"late", acks=1))
    assert code_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("api", "request_type"),
    [(metadata.API, MetadataRequest), (describe_cluster.API, DescribeClusterRequest)],
)
def test_a_broker_that_has_just_started_names_the_cluster_once_it_knows_it(
    topic, api, request_type
):
    """librdkafka takes an empty list of brokers for an answer, and finds no controller."""
    assert topic.controller is not None
    restarted = topic.controller.id % 3 + 1
    topic[restarted].kill(session_ends_at_once=True)
    topic[restarted].start()
    topic.loop.run_until(lambda: topic[restarted].serving)
    assert not topic[restarted].metadata.is_initialized
    response = topic.answer(topic.ask(restarted, api, 0, request_type()))
    assert sorted(b.broker_id for b in response.brokers) == [1, 2, 3]


def test_a_broker_that_no_controller_tells_anything_says_so_after_some_seconds(topic):
    topic[1].kill()
    topic.network.isolate(1)
    topic.network.cuts = {cut for cut in topic.network.cuts if 0 not in cut}
    topic[1].start()
    topic.loop.run_until(lambda: topic[1].serving)
    answers = topic.ask(1, metadata.API, 8, MetadataRequest(topics=[]))
    topic.loop.run_for(MAX_WAIT_MS - 100)
    assert not answers
    assert len(topic[1].metadata._waiting) == 1
    assert topic.answer(answers).brokers == []
    assert not topic[1].metadata._waiting, "a broker may be asked for hours"


def test_a_broker_without_a_lease_sends_clients_to_the_others(topic):
    """It may not know who leads: librdkafka asked it again and again, and never found out."""
    leader = topic.state(TP).leader

    def asked() -> MetadataResponse:
        request = MetadataRequest(topics=["t"])
        return topic.answer(topic.ask(leader, metadata.API, 8, request))

    def told() -> tuple[list[int], int]:
        response = asked()
        return sorted(b.broker_id for b in response.brokers), response.topics[0].partitions[
            0
        ].leader

    assert told() == ([1, 2, 3], leader)
    topic.network.isolate(leader)
    topic.network.cuts = {cut for cut in topic.network.cuts if 0 not in cut}
    topic[leader].session.cut_off()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 5000)
    assert told() == (sorted({1, 2, 3} - {leader}), -1)
    topic[leader].session.reconnect()
    topic.network.cuts = set()
    topic.wait_in_sync(TP, 1, 2, 3)
    assert told() == ([1, 2, 3], topic.state(TP).leader)


def test_a_broker_with_a_new_session_leads_nothing_until_the_controller_says_so(topic):
    leader = topic.state(TP).leader
    topic.network.isolate(leader)
    topic[leader].session.cut_off()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 5000)
    topic[leader].session.reconnect()
    topic.loop.run_for(2000)
    assert topic[leader].replicas.get(TP).leader is not None  # it has not heard yet
    topic.network.cuts = {cut for cut in topic.network.cuts if 0 in cut}
    answers = topic.produce(leader, TP, b"stale", acks=1)
    assert code_of(topic.answer(answers)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert topic.produced(TP, b"second") == 1
    topic.wait_in_sync(TP, 1, 2, 3)


def test_an_isr_change_whose_answer_was_lost_is_settled(topic):
    leader = topic.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    topic[leader].session.lose_answers = 1
    topic.network.cut(leader, follower)
    topic.produce(leader, TP, b"second")
    topic.loop.run_until(lambda: follower not in topic.state(TP).isr, limit_ms=30_000)
    assert topic.produced(TP, b"third") == 2
    topic.network.heal()
    topic.wait_in_sync(TP, 1, 2, 3)


def test_a_dead_controller_is_replaced_and_elections_go_on(topic):
    controller = topic.controller
    assert controller is not None
    controller.kill()
    leader = topic.state(TP).leader
    if topic[leader].up:
        topic[leader].kill()
    assert topic.produced(TP, b"second") == 1


def test_a_replaced_controller_resigns_and_writes_nothing(topic):
    controller = topic.controller
    assert controller is not None
    epoch = topic.zookeeper.data(ControllerEpochZNode.PATH)
    controller.session.cut_off()
    topic.loop.run_until(
        lambda: topic.zookeeper.data(ControllerEpochZNode.PATH) != epoch, limit_ms=20_000
    )
    controller.session.reconnect()
    topic.loop.run_for(1000)
    assert controller.parts.cluster.controller.acting is None


def test_a_leaving_broker_hands_over_and_is_not_taken_into_the_isr_again(topic):
    leader = topic.state(TP).leader
    controller = topic.controller
    assert controller is not None
    topic[leader].parts.cluster.registration.leave()
    request = controlled_shutdown.ControlledShutdownRequest(
        broker_id=leader, broker_epoch=topic[leader].broker_epoch
    )
    answer = topic.answer(topic.ask(controller.id, controlled_shutdown.API, 0, request))
    assert (answer.error_code, list(answer.remaining_partitions)) == (0, [])
    epoch = topic.state(TP).leader_epoch
    topic.loop.run_for(5000)
    assert leader not in topic.state(TP).isr
    assert topic.state(TP).leader_epoch == epoch


def test_all_that_a_leaving_controller_led_is_led_when_it_may_stop(cluster):
    """Else the rest would wait for the next controller."""
    assert cluster.create_topic("t", partitions=LEAST_IN_WAVE).error_code == 0
    tps = [TopicPartition("t", number) for number in range(LEAST_IN_WAVE)]
    for tp in tps:
        cluster.wait_in_sync(tp, 1, 2, 3)
    controller = cluster.controller
    assert controller is not None
    led = [tp for tp in tps if cluster.state(tp).leader == controller.id]
    controller.parts.cluster.registration.leave()
    request = controlled_shutdown.ControlledShutdownRequest(
        broker_id=controller.id, broker_epoch=controller.broker_epoch
    )
    answer = cluster.answer(cluster.ask(controller.id, controlled_shutdown.API, 0, request))
    assert (answer.error_code, list(answer.remaining_partitions)) == (0, [])
    for tp in led:
        replica = cluster[cluster.state(tp).leader].replicas.get(tp)
        assert replica is not None
        assert replica.leader is not None


def test_a_controller_that_resigns_tells_a_leaving_broker_to_ask_the_next(topic):
    assert topic.create_topic("other").error_code == 0
    controller = topic.controller
    assert controller is not None
    leaders = {topic.state(tp).leader for tp in (TP, TopicPartition("other", 0))}
    leaving = (leaders - {controller.id}).pop()
    request = controlled_shutdown.ControlledShutdownRequest(
        broker_id=leaving, broker_epoch=topic[leaving].broker_epoch
    )
    controller.session.cut_off()  # nothing can be written, so nothing moves
    answers = topic.ask(controller.id, controlled_shutdown.API, 0, request)
    topic.loop.run_for(SESSION_TIMEOUT_MS + 100)
    controller.session.reconnect()
    answer = topic.answer(answers, limit_ms=1000)
    assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_CONTROLLER


def test_a_second_broker_with_a_live_id_is_refused(topic, tmp_path):
    double = SimulatedBroker(1, tmp_path / "double", topic.network, topic.zookeeper, {})
    double.start()
    topic.loop.run_for(2 * SESSION_TIMEOUT_MS)
    (failure,) = double.refused
    assert "broker id 1 is in use" in str(failure)
    double.kill()


def test_a_follower_that_lost_everything_is_filled_again(topic):
    for number in range(5):
        topic.produced(TP, b"record %d" % number)
    leader = topic.state(TP).leader
    follower = next(b for b in (1, 2, 3) if b != leader)
    log_of(topic, follower).truncation.truncate_fully_and_start_at(100)
    topic.produced(TP, b"one more")
    topic.loop.run_until(lambda: contents(topic, follower) == contents(topic, leader))
