"""Groups for the assignors, and what each assignment has to keep."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from storage_engine.core.groups.assignors.assignment import (
    Assignment,
    Assignor,
    SubscribedMember,
)

TOPICS = tuple(UUID(int=number) for number in (17, 1, 25, 9))
"""The order of these in a set is that in which they were added."""
NAMES = tuple("dfbaceg")

Owners = dict[tuple[UUID, int], str]


class Case(NamedTuple):
    members: dict[str, SubscribedMember]
    partitions: Mapping[UUID, int]


sizes = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS[:3]})
alike = st.just(frozenset(TOPICS))
unlike = st.frozensets(st.sampled_from(TOPICS))
"""The fourth topic does not exist."""
instances = st.none() | st.sampled_from(["x", "y", "z"])


@st.composite
def members(
    draw: st.DrawFn, subscriptions: st.SearchStrategy[frozenset[UUID]], least: int = 1
) -> dict[str, SubscribedMember]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=least, unique=True))
    return {
        name: SubscribedMember(draw(subscriptions), draw(instances), current={}) for name in names
    }


@st.composite
def changed(
    draw: st.DrawFn, assign: Assignor, subscriptions: st.SearchStrategy[frozenset[UUID]]
) -> Case:
    """A group after an assignment, with other members, subscriptions and sizes now."""
    before, after = draw(members(subscriptions, 0)), draw(members(subscriptions))
    assigned = assign(before, draw(sizes))
    return Case(
        {name: each._replace(current=assigned.get(name, {})) for name, each in after.items()},
        draw(sizes),
    )


@st.composite
def wild(draw: st.DrawFn) -> Case:
    """A group in which anybody may hold anything."""
    held = st.dictionaries(
        st.sampled_from(TOPICS), st.frozensets(st.integers(0, 12), min_size=1, max_size=6)
    )
    some = draw(members(alike | unlike))
    return Case(
        {name: each._replace(current=draw(held)) for name, each in some.items()}, draw(sizes)
    )


def owners_of(assigned: Mapping[str, Assignment]) -> Owners:
    owners: Owners = {}
    for name, assignment in assigned.items():
        for topic, partitions in assignment.items():
            assert partitions, f"{name} has a topic without partitions"
            for each in partitions:
                assert (topic, each) not in owners, f"{topic}-{each} has two owners"
                owners[topic, each] = name
    return owners


def loads_of(assigned: Mapping[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, assignment.values())) for name, assignment in assigned.items()}


def moved(case: Case, owners: Owners) -> Owners:
    """The partitions that have another owner now, with it."""
    return {
        (topic, each): owners[topic, each]
        for name, member in case.members.items()
        for topic, partitions in member.current.items()
        for each in partitions
        if owners.get((topic, each), name) != name
    }


def check_owners(assign: Assignor, case: Case) -> None:
    """Each partition of a subscribed topic has one owner, which subscribes to it; nobody has
    anything else."""
    assigned = assign(*case)
    assert assigned.keys() == case.members.keys()
    wanted = {
        (topic, each)
        for member in case.members.values()
        for topic in member.topics
        for each in range(case.partitions.get(topic, 0))
    }
    owners = owners_of(assigned)
    assert owners.keys() == wanted
    assert all(topic in case.members[name].topics for (topic, _), name in owners.items())


def check_same_again(assign: Assignor, case: Case) -> None:
    """The assignment of what is assigned already consists of the same objects."""
    assigned = assign(*case)
    settled = {
        name: member._replace(current=assigned[name]) for name, member in case.members.items()
    }
    again = assign(settled, case.partitions)
    assert all(again[name] is assigned[name] for name in assigned if assigned[name])
    assert again == assigned


def check_order(assign: Assignor, case: Case, shuffle: Callable[[list[str]], None]) -> None:
    """The order of mappings, and of the sets in them, counts for nothing."""
    names = list(case.members)
    shuffle(names)
    members = {
        name: case.members[name]._replace(
            topics=frozenset(reversed(list(case.members[name].topics))),
            current=dict(reversed(list(case.members[name].current.items()))),
        )
        for name in names
    }
    assert assign(members, dict(reversed(list(case.partitions.items())))) == assign(*case)
