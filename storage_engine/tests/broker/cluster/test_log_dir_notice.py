"""A broker's notices of failed log dirs reach the controller (KIP-112)."""

from storage_engine.broker.cluster.log_dir_notice import LogDirNotice
from storage_engine.zookeeper.admin_znodes import LogDirEventZNode


def test_the_parent_of_the_notices_of_failed_log_dirs_is_made_again(cluster):
    cluster.zookeeper.drop(LogDirEventZNode.PARENT)
    broker = cluster[1]
    LogDirNotice(broker.parts.ports.metadata_store, broker.network.loop, broker_id=1).send()
    cluster.loop.run_until(lambda: LogDirEventZNode.PARENT in cluster.zookeeper.nodes)
