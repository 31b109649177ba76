"""Replicas that end, and what begins under their name: a topic that was deleted, an order to stop.
Source: R-CTL6, R-REP10."""

from uuid import uuid4

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)


def deleted(cluster: SimulatedCluster, answers: list) -> None:
    assert cluster.answer(answers).responses[0].error_code == 0
    assert TopicZNode.path("t") not in cluster.zookeeper.nodes


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


unbalanced = cluster_fixture("t", simulated_disk=True, auto_leader_rebalance_enable="false")


def test_a_replica_that_was_stopped_knows_how_far_it_was_committed(unbalanced):
    """Its broker began with nothing; it may lead before it has fetched again."""
    cluster = unbalanced
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    leader = cluster.state(TP).leader
    follower = next(b for b in cluster.brokers if b.id != leader and b is not cluster.controller)
    replicas = follower.replicas
    cluster.loop.run_until(lambda: replicas.get(TP).high_watermark == 1)
    # What it fetches from now on does not arrive.
    cluster.network.hold_up(follower.id, leader)
    replicas.stop(TP, delete=False)
    assert replicas.get(TP) is None
    cluster.zookeeper.drop(ControllerZNode.PATH)
    cluster.loop.run_until(lambda: replicas.get(TP) is not None)
    assert replicas.get(TP).high_watermark == 1
