"""Rates over several looks."""

import pytest

from headrace_console.cluster.snapshot import Ends
from headrace_console.cluster.traffic import LOOKS, POINTS, Traffic
from storage_engine.core.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def look(traffic, at_s, ends, sizes=None):
    traffic.add(
        at_s * 1000,
        {tp: Ends(0, end, end) for tp, end in ends.items()},
        sizes or {},
        new_sizes=sizes is not None,
    )


def test_a_rate_is_over_the_last_looks_and_a_point_over_the_last_interval():
    traffic = Traffic()
    for at_s in range(LOOKS + 5):
        look(traffic, at_s, {A: 10 * at_s, B: 0})
    look(traffic, LOOKS + 5, {A: 10 * (LOOKS + 4) + 50, B: 0})
    assert traffic.rates == {A: pytest.approx((10 * (LOOKS - 2) + 50) / (LOOKS - 1)), B: 0}
    assert [point.records_per_s for point in traffic.points][-2:] == [10, 50]


def test_the_first_look_has_no_rate_and_a_new_partition_none_until_it_was_seen_before():
    traffic = Traffic()
    look(traffic, 1, {A: 5})
    assert (traffic.rates, traffic.points) == ({}, ())
    look(traffic, 2, {A: 8, B: 1_000})
    assert traffic.rates == {A: 3}
    assert [point.records_per_s for point in traffic.points] == [3]


def test_a_log_that_is_smaller_than_before_has_taken_nothing():
    traffic = Traffic()
    look(traffic, 1, {A: 50}, {A: 1_000, B: 500})
    look(traffic, 2, {A: 20}, {A: 10, B: 900})
    assert traffic.rates == {A: 0}
    assert traffic.topic_bytes_per_s == {"t": 400}
    assert traffic.points[-1][1:] == (0, 400)


def test_a_look_without_sizes_leaves_their_rate_as_it_was():
    traffic = Traffic()
    look(traffic, 1, {A: 0}, {A: 100})
    look(traffic, 2, {A: 0})
    assert traffic.points[-1].bytes_per_s is None, "one size alone is no rate"
    look(traffic, 3, {A: 0}, {A: 300})
    look(traffic, 4, {A: 0})
    assert traffic.topic_bytes_per_s == {"t": 100}


def test_two_looks_at_one_time_make_no_point_and_points_are_bounded():
    traffic = Traffic()
    look(traffic, 1, {A: 0})
    look(traffic, 1, {A: 5})
    assert (traffic.rates, traffic.points) == ({}, ())
    for at_s in range(2, POINTS + 10):
        look(traffic, at_s, {A: 5})
    assert len(traffic.points) == POINTS
