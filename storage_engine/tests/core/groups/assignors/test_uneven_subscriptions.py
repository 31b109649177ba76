"""The assignor `uniform` for members that subscribe to different topics."""

from uuid import UUID

import pytest
from hypothesis import given, settings

from storage_engine.core.groups.assignors import uneven_subscriptions
from storage_engine.core.groups.assignors.assignment import SubscribedMember
from storage_engine.core.groups.assignors.uniform import assign_uniformly
from storage_engine.tests.core.groups.assignors.assignor_cases import (
    Case,
    changed,
    check_owners,
    loads_of,
    moved,
    owners_of,
    unlike,
    wild,
)
from storage_engine.tests.sampling import examples

groups = changed(assign_uniformly, unlike)
often = settings(max_examples=examples(1_000), deadline=None)
T, U, V = (UUID(int=number) for number in (1, 2, 3))


def improving(case: Case) -> list[tuple[str, str]]:
    """The moves of one partition that would make the numbers of partitions more even."""
    assigned = assign_uniformly(*case)
    loads = loads_of(assigned)
    return [
        (name, other)
        for name, assignment in assigned.items()
        for topic in assignment
        for other, member in case.members.items()
        if topic in member.topics and loads[name] - loads[other] > 1
    ]


@often
@given(groups | wild())
def test_no_move_of_one_partition_would_make_it_more_even(case):
    assert improving(case) == []


@often
@given(groups)
def test_no_former_owner_could_have_kept_a_partition_as_well(case):
    assigned = assign_uniformly(*case)
    loads = loads_of(assigned)
    for (topic, partition), owner in moved(case, owners_of(assigned)).items():
        (former,) = (
            name
            for name, member in case.members.items()
            if partition in member.current.get(topic, ())
        )
        assert topic not in case.members[former].topics or loads[owner] <= loads[former]


def member(*topics: UUID, **current: frozenset[int]) -> SubscribedMember:
    names = {"t": T, "u": U, "v": V}
    return SubscribedMember(
        frozenset(topics), None, {names[name]: each for name, each in current.items()}
    )


def test_who_subscribes_to_more_leaves_a_topic_to_those_who_have_nothing_else():
    assigned = assign_uniformly({"a": member(T, U), "b": member(T)}, {T: 2, U: 2})
    assert assigned == {"a": {U: {0, 1}}, "b": {T: {0, 1}}}


def test_what_was_free_moves_before_what_has_an_owner():
    before = {"a": member(T, t=frozenset({0, 1, 2})), "b": member(U), "c": member(U, V)}
    assigned = assign_uniformly(before, {T: 3, U: 3, V: 3})
    assert assigned["a"] is before["a"].current
    assert loads_of(assigned) == {"a": 3, "b": 3, "c": 3}


def test_who_has_given_more_than_others_needed_has_it_again():
    """What nobody had goes to `b`, then `a` gives to both others."""
    before = {"a": member(T, U, V, t=frozenset({0}), u=frozenset({0})), "b": member(T, U)}
    assigned = assign_uniformly({**before, "c": member(U)}, {T: 2, U: 1, V: 1})
    assert assigned == {"a": {T: {0}, V: {0}}, "b": {T: {1}}, "c": {U: {0}}}


def test_topics_with_few_subscribers_are_dealt_first(monkeypatch: pytest.MonkeyPatch):
    """So most groups are even before anything moves."""
    monkeypatch.setattr(uneven_subscriptions, "WORK", 0)
    subscribed = {"a": member(T), "b": member(T, U), "c": member(T, U, V)}
    assigned = assign_uniformly(subscribed, {T: 9, U: 9, V: 9})
    assert loads_of(assigned) == {"a": 9, "b": 9, "c": 9}


def test_loads_even_out_along_a_chain_of_subscriptions():
    topics = [UUID(int=number + 1) for number in range(9)]
    chain = {f"m{n}": member(*topics[n : n + 2]) for n in range(8)}
    chain["m0"] = chain["m0"]._replace(current={topics[0]: frozenset(range(80))})
    case = Case(chain, {**dict.fromkeys(topics, 10), topics[0]: 80})
    assert improving(case) == []


def test_the_work_on_a_hopeless_group_has_an_end(monkeypatch: pytest.MonkeyPatch):
    """It is sound by then, if not even."""
    topics = [UUID(int=number + 1) for number in range(40)]
    chain = {f"m{n}": member(*topics[n : n + 2]) for n in range(39)}
    case = Case(chain, dict.fromkeys(topics, 200))
    monkeypatch.setattr(uneven_subscriptions, "WORK", 2_000)
    assert improving(case)
    check_owners(assign_uniformly, case)
