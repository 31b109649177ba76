"""Loads of brokers, and what is near enough to the mean."""

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import layout
from storage_engine.tools.placement.loads import Band, Load, bands, beyond, loads


def test_loads_are_those_after_a_plan():
    cluster = layout([(1, 2), (2, 3)], brokers=3, sizes={0: 10, 1: 7})
    found = loads(cluster, {TopicPartition("t", 0): (3, 2)})
    assert {b: each[Load.REPLICAS] for b, each in found.items()} == {1: 0, 2: 2, 3: 2}
    assert {b: each[Load.BYTES] for b, each in found.items()} == {1: 0, 2: 17, 3: 17}
    assert {b: each[Load.LEADERS] for b, each in found.items()} == {1: 0, 2: 1, 3: 1}


def test_one_replica_more_or_less_is_near_enough():
    cluster = layout([(1, 2), (2, 1), (1, 3)], brokers=4)
    limits = bands(cluster, [Load.REPLICAS, Load.BYTES], 0.1)
    assert limits[Load.REPLICAS] == Band(1.5, 1, 2)
    assert limits[Load.BYTES] == Band(150, 135, 165)
    assert beyond(cluster, {}, limits)[Load.REPLICAS] > 0


def test_cordoned_and_dead_brokers_do_not_count():
    cluster = layout([(1, 2), (1, 2)], brokers=4, cordoned={3}, dead={4})
    assert bands(cluster, [Load.REPLICAS], 0.0)[Load.REPLICAS] == Band(2, 2, 2)
