"""What the leaders of the benchmark's classic groups assign."""

import pytest

from benchmarks.groups.classic_assignments import (
    COOPERATIVE,
    EAGER,
    assigned,
    cooperative,
    owned_of,
    subscription,
)
from storage_engine.protocol.consumer_protocol import decode_assignment


@pytest.mark.parametrize("owned", [frozenset(), frozenset({0, 3, 999})])
def test_a_member_tells_the_leader_what_it_owns(owned):
    assert owned_of(subscription("topic", owned)) == owned


def test_a_first_generation_shares_all():
    given = cooperative(5, {"a": frozenset(), "b": frozenset()})
    assert sorted(map(len, given.values())) == [2, 3]
    assert sorted(number for each in given.values() for number in each) == list(range(5))


def test_one_that_joins_gets_nothing_before_another_has_given_it_up():
    before = {"a": frozenset({0, 1}), "b": frozenset({2, 3}), "c": frozenset()}
    first = cooperative(4, before)
    assert first["c"] == frozenset()
    assert all(first[name] <= before[name] for name in ("a", "b"))
    second = cooperative(4, first)
    assert len(second["c"]) == 1
    assert all(second[name] == first[name] for name in ("a", "b"))
    assert cooperative(4, second) == second


def test_what_one_that_left_had_goes_to_others_at_once_and_nothing_else_moves():
    given = cooperative(6, {"a": frozenset({0, 1}), "b": frozenset({4, 5})})
    assert given["a"] > {0, 1}
    assert given["b"] > {4, 5}
    assert given["a"] | given["b"] == set(range(6))


def test_a_partition_that_two_claim_stays_with_one():
    given = cooperative(2, {"a": frozenset({0, 1}), "b": frozenset({0})})
    assert not given["a"] & given["b"]


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_assignments_are_encoded_as_consumers_read_them(strategy):
    members = {name: subscription("t", frozenset()) for name in ("a", "b")}
    given = assigned(strategy, "t", 4, members)
    read = [each.partition for data in given.values() for each in decode_assignment(data)]
    assert sorted(read) == [0, 1, 2, 3]
