"""R-CTL7: after a broker was away, the partitions that prefer it are led by it again."""

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)


def test_leaders_return_to_their_preferred_replicas(tmp_path):
    settings = (("leader.imbalance.check.interval.seconds", "1"),)
    with running_cluster(tmp_path, settings=settings) as cluster:
        create_topic(cluster, "balanced", partitions=3)
        client = admin(cluster)
        before = [leader_of(client, "balanced", partition) for partition in range(3)]
        assert sorted(before) == [1, 2, 3]

        cluster.kill_broker(before[0])
        wait_until(lambda: leader_of(client, "balanced", 0) != before[0], "another broker leads")
        cluster.start_broker(before[0])
        for partition in range(3):
            wait_for_isr(client, "balanced", 3, partition)

        wait_until(
            lambda: [leader_of(client, "balanced", p) for p in range(3)] == before,
            "every partition is led by its preferred replica",
        )
