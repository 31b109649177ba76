"""Topics are deleted, and made anew under their name, while brokers and controllers come and go.
Source: R-CTL5, R-CTL6, R-CTL10."""

import json

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import ZkOpKind
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)


def deleted(cluster: SimulatedCluster, answers: list) -> None:
    assert cluster.answer(answers).responses[0].error_code == 0
    assert TopicZNode.path("t") not in cluster.zookeeper.nodes


def test_a_deleted_topic_leaves_nothing_on_any_broker(topic):
    deleted(topic, topic.delete_topic("t"))
    assert all(TP not in broker.logs.logs for broker in topic.brokers)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == []


def test_a_topic_made_anew_under_the_same_name_begins_empty(topic):
    deleted(topic, topic.delete_topic("t"))
    assert topic.create_topic("t").error_code == 0
    assert topic.produced(TP, b"of the new topic") == 0
    topic.wait_in_sync(TP, 1, 2, 3)


def test_a_deletion_with_a_dead_broker_completes_when_it_returns(topic):
    controller = topic.controller
    assert controller is not None
    dead = next(b for b in topic.brokers if b is not controller)
    dead.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    answers = topic.delete_topic("t", timeout_ms=3000)
    code = topic.answer(answers).responses[0].error_code
    assert ErrorCode.of(code) is ErrorCode.REQUEST_TIMED_OUT
    dead.start()
    topic.loop.run_until(lambda: TopicZNode.path("t") not in topic.zookeeper.nodes)
    assert TP not in dead.logs.logs
    assert topic.create_topic("t").error_code == 0
    assert topic.produced(TP, b"new") == 0


def test_a_new_controller_completes_the_deletion_of_the_one_that_died(topic):
    controller = topic.controller
    assert controller is not None
    topic.delete_topic("t")
    topic.loop.run_until(
        lambda: DeleteTopicsZNode.topic_path("t") in topic.zookeeper.nodes, limit_ms=1000
    )
    controller.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    controller.start()
    topic.loop.run_until(lambda: TopicZNode.path("t") not in topic.zookeeper.nodes)


def test_a_new_controller_completes_the_creation_of_the_one_that_died(cluster):
    controller = cluster.controller
    assert controller is not None
    cluster.zookeeper.put(TopicZNode.path("t"), b'{"version":1,"partitions":{"0":[1,2,3]}}')
    controller.kill()
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    controller.start()
    assert cluster.produced_when_there(TP, b"first") == 0


def test_who_waits_for_a_deletion_hears_when_the_controller_resigns(topic):
    controller = topic.controller
    assert controller is not None
    next(b for b in topic.brokers if b is not controller).kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    answers = topic.delete_topic("t", timeout_ms=100_000)
    topic.loop.run_for(1000)
    assert not answers
    controller.session.cut_off()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1)
    controller.session.reconnect()
    code = topic.answer(answers, limit_ms=1000).responses[0].error_code
    assert ErrorCode.of(code) is ErrorCode.REQUEST_TIMED_OUT


def test_a_topic_that_goes_while_it_is_read_again_is_known_no_more(topic, monkeypatch):
    """Else this controller would try to elect leaders for it until it ends."""
    acting = topic.controller.parts.cluster.controller.acting
    session = topic.controller.session
    multi = session.multi

    def read_before(operations, on_reply):
        if any((op.kind, op.path) == (ZkOpKind.DELETE, TopicZNode.path("t")) for op in operations):
            acting.settings_changed(["t"])
        multi(operations, on_reply)

    monkeypatch.setattr(session, "multi", read_before)
    deleted(topic, topic.delete_topic("t"))
    topic.loop.run_for(1000)
    assert acting.core.topic("t") is None
    monkeypatch.undo()
    assert topic.create_topic("t").error_code == 0
    assert topic.produced(TP, b"new") == 0


def test_a_request_left_behind_does_not_delete_a_later_topic(topic):
    deleted(topic, topic.delete_topic("t"))
    # Somebody asked for it a moment too late.
    topic.zookeeper.put(DeleteTopicsZNode.topic_path("t"), b"")
    topic.loop.run_for(1000)
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == []
    assert topic.create_topic("t").error_code == 0
    assert topic.create_topic("other").error_code == 0
    assert topic.produced(TP, b"still here") == 0


def test_a_topic_made_anew_by_others_while_the_old_one_goes_is_seen(topic):
    path = TopicZNode.path("t")
    topic.delete_topic("t")
    topic.loop.run_until(lambda: path not in topic.zookeeper.nodes)
    topic.zookeeper.put(path, b'{"version":1,"partitions":{"0":[2,3,1]}}')
    assert topic.produced_when_there(TP, b"new") == 0


def delete_without_an_answer(cluster: SimulatedCluster, *, is_cut_off: bool = False) -> list:
    """ZooKeeper has removed the topic, and the controller can't know."""
    path = TopicZNode.path("t")
    session = cluster.controller.session
    lost: list[str] = []

    def losing(written: str, _before: bytes | None, data: bytes | None) -> None:
        if lost or (written, data) != (path, None):
            return
        lost.append(written)
        if is_cut_off:
            session.cut_off()
            cluster.loop.call_later(200, session.reconnect)
        else:
            session.lose_answers = 1

    cluster.zookeeper.on_write = losing
    answers = cluster.delete_topic("t")
    cluster.loop.run_until(lambda: bool(lost))
    return answers


@pytest.mark.parametrize("is_cut_off", [False, True])
@pytest.mark.parametrize("gap_ms", [0, 10, 300])
def test_a_topic_made_anew_by_others_outlives_a_lost_answer_to_the_deletion(
    topic, gap_ms, is_cut_off
):
    answers = delete_without_an_answer(topic, is_cut_off=is_cut_off)
    topic.loop.run_for(gap_ms)
    topic.zookeeper.put(TopicZNode.path("t"), b'{"version":1,"partitions":{"0":[2,3,1]}}')
    assert topic.answer(answers).responses[0].error_code == 0
    assert topic.produced_when_there(TP, b"new") == 0
    deleted(topic, topic.delete_topic("t"))


def test_a_topic_made_anew_is_deleted_too_when_that_is_asked_for_before_the_old_one_is_known_to_go(
    topic,
):
    answers = delete_without_an_answer(topic)
    topic.zookeeper.put(TopicZNode.path("t"), b'{"version":1,"partitions":{"0":[2,3,1]}}')
    topic.zookeeper.put(DeleteTopicsZNode.topic_path("t"), b"")
    deleted(topic, answers)
    topic.loop.run_for(5000)
    assert TopicZNode.path("t") not in topic.zookeeper.nodes
    assert topic.zookeeper.children(DeleteTopicsZNode.PATH) == []


def test_a_deletion_asked_for_as_json_is_carried_out(topic):
    request = json.dumps({"version": 1, "topics": ["t", "never there"]}).encode()
    topic.zookeeper.put(DeleteTopicsZNode.PATH, request)
    topic.loop.run_until(lambda: TopicZNode.path("t") not in topic.zookeeper.nodes)
    topic.loop.run_for(1000)
    left = topic.zookeeper.data(DeleteTopicsZNode.PATH)
    assert not left or DeleteTopicsZNode.decode(left).topics == ()


def test_a_topic_whose_nodes_were_removed_by_hand_does_not_keep_the_controller_busy(topic):
    for path in sorted(
        (p for p in topic.zookeeper.nodes if p.startswith(TopicZNode.path("t"))), reverse=True
    ):
        del topic.zookeeper.nodes[path]
    follower = next(b for b in topic.brokers if b is not topic.controller)
    follower.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    calls = 0
    multi = topic.zookeeper.multi

    def counting(*arguments):
        nonlocal calls
        calls += 1
        return multi(*arguments)

    topic.zookeeper.multi = counting
    topic.loop.run_for(1000)
    assert calls < 100
