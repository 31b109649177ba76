"""A leader that heard nothing of somebody else's leadership between two of its own."""

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import create_topic_request
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_topics
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)


def assigned(cluster: SimulatedCluster) -> dict[int, tuple[int, ...]]:
    data = cluster.zookeeper.data(TopicZNode.path(TP.topic))
    assert data is not None
    return dict(TopicZNode.decode(TP.topic, data).assignment)


def end_of(cluster: SimulatedCluster, broker: int) -> int:
    return cluster[broker].logs.logs[TP].log_end_offset


def restart(cluster: SimulatedCluster, broker: int) -> None:
    cluster[broker].kill(session_ends_at_once=True)
    cluster[broker].start()


def test_a_leader_that_missed_an_epoch_forgets_what_its_followers_held(cluster):
    """a leads, b is preferred, c has a record that b lacks. b leads for a moment; c follows it and
    cuts the record. b restarts, and a leads again. Of b's leadership a hears nothing: orders to it
    are held up, and only the newest is sent then. What c held under the former epoch counts no
    more: a would acknowledge what it has alone, die, and c would lead without it."""
    assert cluster.controller is not None
    c = cluster.controller.id
    b, a = (broker for broker in (1, 2, 3) if broker != c)
    cluster.reassign(TP, (b, a, c))
    cluster.loop.run_until(lambda: assigned(cluster)[0] == (b, a, c))
    cluster.elect_preferred(TP)
    cluster.loop.run_until(lambda: cluster.state(TP).leader == b)
    restart(cluster, b)
    cluster.loop.run_until(lambda: cluster.state(TP).leader == a)
    cluster.wait_in_sync(TP, 1, 2, 3)
    # b's fetches get lost on the way, those under way are answered.
    cluster.network.hold_up(b, a)
    cluster.loop.run_for(1000)
    answers = cluster.produce(a, TP, b"on a and c")
    cluster.loop.run_until(lambda: end_of(cluster, c) == 2)
    cluster.loop.run_for(50)
    assert end_of(cluster, b) == 1
    assert not answers
    # Orders to a are held up; one is under way, and what follows waits for its answer.
    cluster.network.hold_up(c, a)
    creation = create_topic_request("x", 1, {})
    cluster.ask_controller(create_topics.API, 5, creation)
    cluster.loop.run_for(100)
    cluster.elect_preferred(TP)
    cluster.loop.run_until(lambda: end_of(cluster, c) == 1)
    assert cluster.state(TP).leader == b
    restart(cluster, b)
    cluster.loop.run_until(lambda: cluster.state(TP).leader == a)
    assert set(cluster.state(TP).isr) == {a, c}
    cluster.loop.run_for(50)
    partition = cluster[a].replicas.get(TP)
    assert partition is not None
    assert partition.leader_epoch == cluster.state(TP).leader_epoch - 2
    cluster.network.heal()
    answer = cluster.answer(answers)
    assert answer.partitions[0].error_code == 0
    assert partition.leader_epoch == cluster.state(TP).leader_epoch
    assert end_of(cluster, c) == 2, "what all acknowledged is on c, which may be elected"
