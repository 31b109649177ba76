"""The assignor `range`."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.groups.assignors.assignment import SubscribedMember
from storage_engine.core.groups.assignors.range_assignor import assign_ranges
from storage_engine.tests.core.groups.assignors.assignor_cases import (
    Case,
    Owners,
    alike,
    changed,
    check_order,
    check_owners,
    check_same_again,
    owners_of,
    unlike,
    wild,
)
from storage_engine.tests.sampling import examples

groups = changed(assign_ranges, alike) | changed(assign_ranges, unlike) | wild()
often = settings(max_examples=examples(1_000), deadline=None)
T, U, V = (UUID(int=number) for number in (1, 2, 3))


def reference(case: Case) -> Owners:
    owners: Owners = {}
    static = [name for name in case.members if case.members[name].instance_id is not None]
    static.sort(key=lambda name: (case.members[name].instance_id, name))
    ordered = static + sorted(case.members.keys() - set(static))
    for topic, size in case.partitions.items():
        subscribers = [name for name in ordered if topic in case.members[name].topics]
        runs: list[str] = []
        for nth, name in enumerate(subscribers):
            runs += [name] * (size // len(subscribers) + (nth < size % len(subscribers)))
        owners |= {(topic, each): name for each, name in enumerate(runs)}
    return owners


@often
@given(groups)
def test_each_topic_is_divided_into_runs_by_the_order_of_its_subscribers(case):
    assert owners_of(assign_ranges(*case)) == reference(case)


@often
@given(groups)
def test_each_partition_has_one_owner_that_subscribes_to_it(case):
    check_owners(assign_ranges, case)


@often
@given(groups)
def test_nothing_moves_when_nothing_has_changed(case):
    check_same_again(assign_ranges, case)


@often
@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_members_and_topics_counts_for_nothing(case, random):
    check_order(assign_ranges, case, random.shuffle)


def member(instance_id: str | None = None) -> SubscribedMember:
    return SubscribedMember(frozenset({T, U, V}), instance_id, current={})


def test_topics_with_as_many_partitions_are_divided_alike():
    for each in assign_ranges({"a": member(), "b": member(), "c": member()}, {T: 7, U: 7}).values():
        assert each[T] == each[U]


def test_static_members_keep_their_partitions_under_other_member_ids():
    before = assign_ranges({"a": member("x"), "b": member("y"), "c": member()}, {T: 7})
    after = assign_ranges({"e": member("x"), "d": member("y"), "c": member()}, {T: 7})
    assert [before[name] for name in "abc"] == [after[name] for name in "edc"]


def test_members_beyond_the_last_partition_get_nothing():
    assigned = assign_ranges({"a": member(), "b": member(), "c": member()}, {T: 1, U: 2})
    assert assigned == {"a": {T: {0}, U: {0}}, "b": {U: {1}}, "c": {}}
