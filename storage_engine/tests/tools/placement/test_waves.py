"""Waves: every partition once, in order, and no more at a time than was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import layout
from storage_engine.tools.placement.waves import WaveLimits, bytes_copied, waves


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5), st.integers(1, 60))
def test_no_wave_is_above_its_limits(sizes, partitions, most):
    plan = {TopicPartition("t", number): (1,) for number in range(len(sizes))}
    copied = dict(zip(plan, sizes, strict=True))
    found = list(waves(plan, copied, WaveLimits(partitions=partitions, bytes_copied=most)))
    assert [tp for wave in found for tp in wave] == list(plan)
    for wave in found:
        assert 1 <= len(wave) <= partitions
        assert len(wave) == 1 or sum(copied[tp] for tp in wave) <= most


def test_only_new_replicas_are_copied():
    cluster = layout([(1, 2, 3), (1, 2, 3)], sizes={0: 10, 1: 7})
    first, second = cluster.partitions
    plan = {first: (3, 4, 5), second: (3, 2, 1), TopicPartition("gone", 0): (1,)}
    assert bytes_copied(cluster, plan) == {first: 20, second: 0}
