"""A broker's notices of failed log dirs reach the controller (KIP-112)."""

from simulation.world.clock import ProcessLoop
from storage_engine.broker.cluster.log_dir_notice import NOTICE_RETRY_MS, LogDirNotice
from storage_engine.tests.zookeeper.lossy_session import LossySession, new_server, settle
from storage_engine.zookeeper.admin_znodes import LogDirEventZNode


def test_the_parent_of_the_notices_of_failed_log_dirs_is_made_again(cluster):
    cluster.zookeeper.drop(LogDirEventZNode.PARENT)
    broker = cluster[1]
    LogDirNotice(broker.parts.ports.metadata_store, broker.network.loop, broker_id=1).send()
    cluster.loop.run_until(lambda: LogDirEventZNode.PARENT in cluster.zookeeper.nodes)


def test_failures_during_a_notice_are_told_by_one_more_after_a_pause_if_it_was_lost():
    """The controller may ask on the first notice, before the later failures."""
    server = new_server()
    process = ProcessLoop(server.loop)
    store = LossySession(server, process)
    notice = LogDirNotice(store, process, broker_id=1)
    for _ in range(3):
        notice.send()
    settle(server)
    assert len(server.children(LogDirEventZNode.PARENT)) == 2
    store.lose_request = True
    notice.send()
    settle(server)
    assert len(server.children(LogDirEventZNode.PARENT)) == 2
    server.loop.run_for(NOTICE_RETRY_MS)
    assert len(server.children(LogDirEventZNode.PARENT)) == 3
