"""ElectLeaders by API and by znode. R-CTL7, R-TOOL3, R-REP9, KIP-460."""

from collections.abc import Iterator

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.reassigning import TP, Moving
from storage_engine.zookeeper.admin_znodes import PreferredReplicaElectionZNode


@pytest.fixture
def cluster(tmp_path) -> Iterator[Moving]:
    made = Moving(tmp_path, 3, auto_leader_rebalance_enable="false")
    try:
        made.create((1, 2, 3), (2, 3, 1))
        made.produced(TP, b"record")
        made.wait_in_sync(TP, 1, 2, 3)
        yield made
    finally:
        made.close()


def lead_elsewhere(cluster: Moving) -> None:
    """The preferred replica comes back and follows."""
    cluster[1].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(TP).leader in (2, 3))
    cluster[1].start()
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert cluster.state(TP).leader != 1


def test_the_preferred_replica_leads_when_it_is_asked_for(cluster):
    lead_elsewhere(cluster)
    assert cluster.elect(0, 1, 9) == {
        0: ErrorCode.NONE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.state(TP).leader == 1


def test_the_node_does_the_same_and_goes_away(cluster):
    lead_elsewhere(cluster)
    node = PreferredReplicaElectionZNode(partitions=(TP, TopicPartition("nowhere", 0)))
    cluster.zookeeper.put(PreferredReplicaElectionZNode.PATH, node.encode())
    cluster.loop.run_until(
        lambda: cluster.zookeeper.data(PreferredReplicaElectionZNode.PATH) is None
    )
    assert cluster.state(TP).leader == 1


def test_a_request_outlives_its_controller(cluster):
    lead_elsewhere(cluster)
    controller = cluster.controller
    assert controller is not None
    controller.session.cut_off()
    node = PreferredReplicaElectionZNode(partitions=(TP,))
    cluster.zookeeper.put(PreferredReplicaElectionZNode.PATH, node.encode())
    controller.kill(session_ends_at_once=True)
    cluster.loop.run_for(1000)
    controller.start()
    cluster.loop.run_until(
        lambda: cluster.zookeeper.data(PreferredReplicaElectionZNode.PATH) is None
    )
    # One that had to be restarted was not in sync when it was asked for; then nobody else is made
    # to wait for it.
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert cluster.elect(0)[0] in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    assert cluster.state(TP).leader == 1


def test_a_preferred_replica_that_is_not_in_sync_is_not_elected(cluster):
    cluster[1].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(TP).leader in (2, 3))
    leader = cluster.state(TP).leader
    cluster.loop.run_until(lambda: cluster.controller is not None)
    assert cluster.elect(0) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.state(TP).leader == leader


def test_an_unclean_leader_is_elected_only_when_it_is_asked_for(cluster):
    assert cluster.elect(0, unclean=True) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    cluster[3].kill()
    for partition in (0, 1):
        cluster.wait_in_sync(TopicPartition("t", partition), 1, 2)
    for dying in (1, 2):
        cluster[dying].kill()
    cluster.loop.run_for(10_000)
    cluster[3].start()
    cluster.loop.run_until(lambda: cluster.controller is not None)
    cluster.loop.run_until(lambda: cluster.state(TP).leader == -1)
    assert cluster.elect(0) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.elect(0, unclean=True) == {0: ErrorCode.NONE}
    assert cluster.state(TP).leader == 3
    assert cluster.state(TopicPartition("t", 1)).leader == -1
    cluster[1].start()
    cluster[2].start()
    cluster.wait_in_sync(TP, 1, 2, 3)
