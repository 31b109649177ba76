"""Topics created, deleted and created again while brokers and controllers come and go: real
brokers, simulated ZooKeeper and network. Source: R-CTL5, R-CTL6, R-CTL10."""

import json
from uuid import uuid4

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.topic_admin import RequestedTopic
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import ZkOpKind
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)


@pytest.fixture
def topic(cluster) -> SimulatedCluster:
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"of the old topic") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    return cluster


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


def test_files_that_can_not_be_deleted_are_tried_again(topic):
    broker = topic.brokers[0]
    log = broker.logs.logs[TP]
    folder = broker.logs._open_logs.dir_of[TP]
    disk = folder._disk
    tries = []

    class StubbornDisk:
        def __getattr__(self, name):
            return getattr(disk, name)

        def rename(self, source, target):
            tries.append(source)
            if len(tries) < 3:
                raise OSError(16, "busy")
            disk.rename(source, target)

    folder._disk = StubbornDisk()
    deleted(topic, topic.delete_topic("t"))
    assert len(tries) == 3
    assert not log.directory.exists()


def test_old_logs_do_not_pass_for_a_topic_made_anew_while_all_brokers_were_down(topic):
    for broker in topic.brokers:
        broker.kill()
    topic.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    path = TopicZNode.path("t")
    for node in sorted((p for p in topic.zookeeper.nodes if p.startswith(path)), reverse=True):
        topic.zookeeper.drop(node)
    topic.zookeeper.put(path, b'{"version":1,"partitions":{"0":[2,3,1]}}')
    for broker in topic.brokers:
        broker.start()
    assert topic.produced_when_there(TP, b"of the new topic") == 0
    topic.wait_in_sync(TP, 1, 2, 3)
    assert [broker.logs.logs[TP].log_end_offset for broker in topic.brokers] == [1, 1, 1]
    for broker in topic.brokers:
        (stray,) = broker.logs.dirs.working_paths[0].glob("t-0.*-stray")
        assert (stray / f"{0:020}.log").stat().st_size > 0


def test_a_live_replica_of_the_old_topic_ends_when_it_hears_of_the_new_one(topic):
    broker = topic.brokers[0]
    old = broker.replicas.get(TP)
    assert old is not None
    order = LeaderAndIsrPartition(
        topic="t",
        partition=0,
        controller_epoch=old.controller_epoch,
        leader=broker.id,
        leader_epoch=0,
        isr=[broker.id],
        partition_epoch=0,
        replicas=[broker.id],
        is_new=True,
        topic_id=uuid4(),
    )
    assert broker.replicas.apply_leadership(order, {}) is ErrorCode.NONE
    new = broker.replicas.get(TP)
    assert new is not None
    assert new is not old
    assert (new.log.log_end_offset, new.leader_epoch) == (0, 0)


@pytest.mark.parametrize("lead_ms", range(6))
def test_of_two_who_create_a_topic_one_does_and_its_settings_count(cluster, lead_ms):
    """The other once removed them, as left over from an old topic."""
    outcomes: list[KafkaError | None] = []
    for number, delay_ms in ((1, 0), (2, lead_ms)):
        admin = cluster[number].parts.cluster.topic_admin
        planned = admin.plan(RequestedTopic(topic="t", config={"retention.ms": str(number)}))
        cluster.loop.run_for(delay_ms)
        admin.write(planned, outcomes.append)
    cluster.loop.run_until(lambda: len(outcomes) == 2)
    refused = [outcome.code for outcome in outcomes if outcome is not None]
    assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS]
    stored = ConfigZNode.decode("t", cluster.zookeeper.data(ConfigZNode.topic_path("t")))
    assert stored.config["retention.ms"] in ("1", "2")
    assert cluster.produced_when_there(TP, b"first") == 0
    kept = cluster[cluster.state(TP).leader].replicas.get(TP).config.log.retention_ms
    assert kept == int(stored.config["retention.ms"])
