"""The lives of a simulated broker: stopped, killed, paused, with its machine."""

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from storage_engine.core.features import NEWEST_LEVELS
from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def registered(cluster, broker: int) -> bool:
    return f"/brokers/ids/{broker}" in cluster.zookeeper.nodes


@pytest.mark.parametrize("way", ["stop", "kill", "lose_machine"])
def test_a_broker_comes_back_with_its_log_and_another_epoch(cluster, way):
    broker = cluster[3]
    before = broker.broker_epoch
    machine = broker.machine.boot_id
    getattr(broker, way)()
    assert not broker.up and not broker.serving
    broker.start()
    cluster.loop.run_until(lambda: broker.broker_epoch > before)
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert broker.logs.logs[TP].log_end_offset == 1
    assert (broker.machine.boot_id != machine) is (way == "lose_machine")


def test_a_killed_broker_is_registered_until_its_session_ends_and_a_stopped_one_is_not(cluster):
    cluster[2].stop()
    assert not registered(cluster, 2)
    cluster[3].kill()
    cluster.loop.run_for(SESSION_TIMEOUT_MS - 100)
    assert registered(cluster, 3)
    cluster.loop.run_for(200)
    assert not registered(cluster, 3)


def test_a_paused_broker_answers_what_came_meanwhile_when_it_goes_on(cluster):
    leader = cluster.state(TP).leader
    cluster[leader].pause()
    answers = cluster.produce(leader, TP, b"late", acks=1)
    cluster.loop.run_for(100)
    assert answers == []
    cluster[leader].resume()
    assert cluster.answer(answers).partitions[0].error_code == 0
    cluster[leader].pause()
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 100)
    assert not registered(cluster, leader), "it sent no heartbeat"


def test_a_broker_serves_only_once_it_knows_the_features(cluster):
    broker = cluster[3]
    broker.stop()
    broker.begin()
    cluster.loop.run_until(lambda: broker.serving)
    finalized = broker.parts.cluster.features.finalized
    assert finalized.levels == NEWEST_LEVELS
