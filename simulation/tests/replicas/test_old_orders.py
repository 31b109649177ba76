"""Orders whose connection the controller gave up, and that arrive after those in their stead."""

from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_an_old_order_takes_back_neither_metadata_nor_the_deletion_of_a_replica(cluster):
    """A replica leaves a broker whose orders are held up. The controller gives the connection up;
    meanwhile the replica is to stay, and is told to the broker on the next connection. Then what
    was said on the first one arrives too: an older leader, and to delete the replica."""
    assert cluster.controller is not None
    controller = cluster.controller.id
    told, other = (broker for broker in (1, 2, 3) if broker != controller)
    cluster.network.hold_up(controller, told)
    cluster.reassign(TP, (controller, other))
    cluster.loop.run_until(lambda: told not in cluster.state(TP).isr)
    cluster.loop.run_for(500)
    old = list(cluster.network.waiting)
    cluster.network.give_up(controller, told)
    cluster.reassign(TP, (controller, other, told))
    cluster.loop.run_for(1000)
    new = [pipe for pipe in cluster.network.waiting if pipe not in old]
    assert old
    assert new
    cluster.network.waiting = new + old
    cluster.network.held_up.clear()
    for pipe in new:
        pipe.go_on()
    cluster.network.waiting = old
    cluster.wait_in_sync(TP, 1, 2, 3)
    cluster.loop.run_for(1000)
    newest = cluster.state(TP).leader_epoch
    for pipe in old:
        pipe.go_on()
    cluster.network.waiting = []
    for _ in range(1000):
        cluster.loop.run_for(1)
        known = cluster[told].metadata.partitions(TP.topic)
        assert known is not None
        assert known[0].leader_epoch >= newest
        assert TP in cluster[told].logs.logs
