"""The assignor `uniform`, above all for members that subscribe to the same topics."""

import time
from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.groups.assignors.assignment import SubscribedMember
from storage_engine.core.groups.assignors.uniform import assign_uniformly
from storage_engine.tests.core.groups.assignors.assignor_cases import (
    TOPICS,
    Case,
    alike,
    changed,
    check_order,
    check_owners,
    check_same_again,
    loads_of,
    moved,
    owners_of,
    unlike,
    wild,
)
from storage_engine.tests.sampling import examples

same_topics = changed(assign_uniformly, alike)
any_topics = same_topics | changed(assign_uniformly, unlike)
often = settings(max_examples=examples(1_000), deadline=None)


@often
@given(any_topics | wild())
def test_each_partition_has_one_owner_that_subscribes_to_it(case):
    check_owners(assign_uniformly, case)


@often
@given(any_topics | wild())
def test_nothing_moves_when_nothing_has_changed(case):
    check_same_again(assign_uniformly, case)


@often
@given(any_topics | wild(), st.randoms(use_true_random=False))
def test_the_order_of_members_and_topics_counts_for_nothing(case, random):
    check_order(assign_uniformly, case, random.shuffle)


@often
@given(same_topics)
def test_numbers_of_partitions_differ_by_one_at_most(case):
    loads = loads_of(assign_uniformly(*case)).values()
    assert max(loads) - min(loads) <= 1


def least_moves(case: Case) -> int:
    """The reference: of all ways to say who gets one more, the one that takes away the least."""
    held = [
        sum(
            each < case.partitions.get(topic, 0)
            for topic, partitions in member.current.items()
            for each in partitions
        )
        for member in case.members.values()
    ]
    least, larger = divmod(sum(case.partitions.values()), len(held))
    return min(
        sum(max(0, count - least - (number in rich)) for number, count in enumerate(held))
        for rich in combinations(range(len(held)), larger)
    )


@often
@given(same_topics)
def test_no_more_partitions_move_than_must(case):
    owners = owners_of(assign_uniformly(*case))
    assert len(moved(case, owners)) == least_moves(case)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_a_member_that_joins_takes_only_what_it_needs(count):
    group = settled(count, dict.fromkeys(TOPICS, 30))
    group.members["joins"] = SubscribedMember(frozenset(TOPICS), None, current={})
    assigned = assign_uniformly(*group)
    taken = moved(group, owners_of(assigned))
    assert set(taken.values()) == {"joins"}
    assert len(taken) == loads_of(assigned)["joins"] == 120 // (count + 1)


def test_a_member_that_joins_gets_partitions_of_many_topics():
    """Those of one topic may all be busy."""
    group = settled(9, dict.fromkeys(TOPICS, 90))
    group.members["joins"] = SubscribedMember(frozenset(TOPICS), None, current={})
    sizes = [len(partitions) for partitions in assign_uniformly(*group)["joins"].values()]
    assert len(sizes) == len(TOPICS)
    assert max(sizes) - min(sizes) <= 2


def test_members_give_up_the_partitions_with_the_highest_numbers():
    """As Kafka's brokers have it, so that users find what they know."""
    topic = TOPICS[0]
    group = settled(1, {topic: 6})
    for name in ("m1", "m2"):
        group.members[name] = SubscribedMember(frozenset(group.partitions), None, current={})
        assigned = assign_uniformly(*group)
        for each, member in group.members.items():
            group.members[each] = member._replace(current=assigned[each])
    owned = {name: sorted(each[topic]) for name, each in assigned.items()}
    assert owned == {"m0": [0, 1], "m1": [3, 4], "m2": [2, 5]}


def test_the_partitions_of_a_topic_are_spread_over_members():
    assigned = assign_uniformly(*settled(6, dict.fromkeys(TOPICS, 6)))
    assert all(len(each) == len(TOPICS) for each in assigned.values())


def test_what_a_member_leaves_goes_to_those_with_the_fewest():
    group = settled(4, {TOPICS[0]: 10})
    loads = loads_of({name: each.current for name, each in group.members.items()})
    leaves = max(loads, key=lambda name: loads[name])
    del group.members[leaves]
    assigned = assign_uniformly(*group)
    assert moved(group, owners_of(assigned)) == {}
    assert sorted(loads_of(assigned).values()) == [3, 3, 4]


def settled(count: int, partitions: dict[UUID, int]) -> Case:
    members = {
        f"m{number}": SubscribedMember(frozenset(partitions), None, current={})
        for number in range(count)
    }
    assigned = assign_uniformly(members, partitions)
    return Case(
        {name: each._replace(current=assigned[name]) for name, each in members.items()},
        partitions,
    )


@pytest.mark.parametrize("topics", [1, 10, 100])
def test_five_hundred_members_of_a_thousand_partitions_take_a_few_milliseconds(topics):
    """5 ms are promised; a slow machine gets three times that."""
    group = settled(500, {UUID(int=number): 1_000 // topics for number in range(topics)})
    group.members["joins"] = SubscribedMember(frozenset(group.partitions), None, current={})
    best_s = 1.0
    for _ in range(10):
        began_s = time.thread_time()
        assign_uniformly(*group)
        best_s = min(best_s, time.thread_time() - began_s)
    assert best_s < 0.015
