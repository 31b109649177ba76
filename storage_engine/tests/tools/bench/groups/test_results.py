"""The lines of `headrace bench groups`."""

import pytest

from benchmarks.groups.results import ABOVE_QUIET, JOIN, STEADY, TARGETS, results_of


@pytest.mark.parametrize(
    ("what", "ours", "goal", "met"),
    [
        (f"consumer: {ABOVE_QUIET}", 500.0, "<= 500", True),
        (f"consumer: {ABOVE_QUIET}", 501.0, "<= 500", False),
        (f"classic, eager (range): {ABOVE_QUIET}", 9000.0, None, None),
        (STEADY, 11.0, "<= 10.0", False),
        (f"1,000th member: {JOIN}", 1.1, "<= 1.0", False),
        (f"10,000th member: {JOIN}", 4.9, "<= 5.0", True),
        ("heartbeats a second", 1000.0, None, None),
    ],
)
def test_goals_are_those_of_the_figure(what, ours, goal, met):
    (line,) = results_of("row", {what: ours}, {})
    assert (line.goal, line.met, line.kafka) == (goal, met, None)


def test_targets_are_reached_as_fast_as_kafkas_or_there_is_no_goal():
    what = f"consumer: one joins, {TARGETS}"
    (beside,) = results_of("rebalance", {what: 3000.0}, {what: 2000.0})
    assert (beside.ratio, beside.goal, beside.met) == (1.5, "ratio <= 1.0", False)
    (below,) = results_of("rebalance", {what: 3000.0}, {what: -2.0})
    assert below.ratio is None, "a difference may be below zero"
    (alone,) = results_of("rebalance", {what: 3000.0}, {})
    assert (alone.ratio, alone.goal, alone.met) == (None, None, None)
