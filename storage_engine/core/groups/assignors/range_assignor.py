"""The assignor `range`: of each topic a member gets a run of neighbouring partitions, by its place
among the members. Topics with the same subscribers and as many partitions are divided alike, so
that what is joined is read by one member. Static members come first, in the order of their instance
ids, which outlive their member ids. Source: KIP-848."""

from collections.abc import Mapping
from uuid import UUID

from storage_engine.core.groups.assignors.assignment import Assignment, SubscribedMember
from storage_engine.core.groups.assignors.subscriptions import by_subscription


def assign_ranges(
    members: Mapping[str, SubscribedMember], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    ordered = sorted(members, key=lambda each: _place(each, members[each]))
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    runs: dict[tuple[int, int], frozenset[int]] = {}
    """Each run once, however many topics are divided alike."""
    for subscribers, topics in _by_subscribers(members, partitions, ordered):
        for topic in topics:
            least, larger = divmod(partitions[topic], len(subscribers))
            first = 0
            for nth, member_id in enumerate(subscribers):
                end = first + least + (nth < larger)
                if first == end:
                    break
                run = runs.get((first, end))
                if run is None:
                    run = runs[first, end] = frozenset(range(first, end))
                assigned[member_id][topic] = run
                first = end
    return {
        member_id: members[member_id].current if members[member_id].current == each else each
        for member_id, each in assigned.items()
    }


def _place(member_id: str, member: SubscribedMember) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member_id


def _by_subscribers(
    members: Mapping[str, SubscribedMember], partitions: Mapping[UUID, int], ordered: list[str]
) -> list[tuple[list[str], list[UUID]]]:
    """Return the existing topics that have the same subscribers, with these in order."""
    subscriptions = by_subscription(members, partitions)
    kinds: dict[UUID, list[int]] = {}
    for kind, topics in enumerate(subscriptions):
        for topic in topics:
            kinds.setdefault(topic, []).append(kind)
    topics_of: dict[tuple[int, ...], list[UUID]] = {}
    for topic, subscribed in kinds.items():
        topics_of.setdefault(tuple(subscribed), []).append(topic)
    places = {member_id: place for place, member_id in enumerate(ordered)}
    members_of = list(subscriptions.values())
    return [
        (
            sorted(
                (each for kind in subscribed for each in members_of[kind]), key=places.__getitem__
            ),
            topics,
        )
        for subscribed, topics in topics_of.items()
    ]
