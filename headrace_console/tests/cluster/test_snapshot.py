"""Figures derived from the state of a cluster."""

from headrace_console.cluster.snapshot import TopicFacts
from headrace_console.tests.made_snapshots import snapshot


def test_whether_a_partition_refuses_acks_all_is_not_known_without_the_settings_of_its_topic():
    seen = snapshot(
        isr=(1,), topics=3, topic_facts={"t0": TopicFacts(2, None), "t1": TopicFacts(1, None)}
    )
    refuses = [seen.is_under_min_isr(tp.topic, partition) for tp, partition in seen.partitions()]
    assert refuses == [True, False, None]


def test_a_leader_that_is_not_in_the_cluster_is_none():
    ((_, partition),) = snapshot((2, 3), leader=1).partitions()
    assert not snapshot((2, 3), leader=1).has_leader(partition)
    assert snapshot((1, 2)).has_leader(partition)
    assert snapshot((2,)).addresses == {2: ("host", 9002)}
