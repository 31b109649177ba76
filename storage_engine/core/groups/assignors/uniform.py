"""The assignor `uniform`: members that subscribe to the same topics get numbers of partitions that
differ by one at most, and a partition moves only where that needs it. Groups whose members
subscribe to different topics are `uneven_subscriptions`' work.

What is free is dealt to one member after another, and what a member gives up is taken evenly from
all of its topics, so that the partitions of one topic end up on many members; of each topic it
gives the partitions with the highest numbers. Source: KIP-848.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from uuid import UUID

from storage_engine.core.groups.assignors.assignment import Assignment, SubscribedMember
from storage_engine.core.groups.assignors.subscriptions import Claims, by_subscription
from storage_engine.core.groups.assignors.uneven_subscriptions import assign_unevenly

Partition = tuple[UUID, int]


def assign_uniformly(
    members: Mapping[str, SubscribedMember], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    subscriptions = by_subscription(members, partitions)
    assignments: dict[str, Assignment] = {member_id: {} for member_id in members}
    if len(subscriptions) == 1:
        ((topics, member_ids),) = subscriptions.items()
        currents = {member_id: members[member_id].current for member_id in member_ids}
        assignments |= _assign_evenly(currents, topics, partitions)
    elif subscriptions:
        assignments |= assign_unevenly(members, subscriptions, partitions)
    return assignments


def _assign_evenly(
    currents: Mapping[str, Assignment], topics: frozenset[UUID], partitions: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Assign to members, in the order of `currents`, that all subscribe to these topics."""
    order = sorted(topics)
    claims = Claims(partitions)
    kept = {each: claims.keep(current, topics) for each, current in currents.items()}
    held = {each: sum(map(len, kept[each].values())) for each in kept}
    quotas = _quotas(held, sum(partitions[topic] for topic in order))
    free = [(topic, each) for topic in order for each in claims.unclaimed(topic)]
    places = {topic: place for place, topic in enumerate(order)}
    for rank, (member_id, quota) in enumerate(quotas.items()):
        if held[member_id] > quota:
            all_held = [
                topic
                for topic in sorted(kept[member_id], key=places.__getitem__)
                for _ in kept[member_id][topic]
            ]
            counts = Counter(_spread(all_held, held[member_id] - quota, rank))
            given = [
                (topic, each)
                for topic, count in counts.items()
                for each in sorted(kept[member_id][topic])[-count:]
            ]
            kept[member_id] = _without(kept[member_id], given)
            free += given
    added: dict[str, dict[UUID, set[int]]] = {}
    for member_id, (topic, partition) in zip(_places(held, quotas), free, strict=True):
        added.setdefault(member_id, {}).setdefault(topic, set()).add(partition)
    return {**kept, **{each: _with(kept[each], more) for each, more in added.items()}}


def _quotas(held: Mapping[str, int], total: int) -> dict[str, int]:
    """Return how many each member gets: of those that get one more the first are those that hold
    as many."""
    least, larger = divmod(total, len(held))
    rich = (each for each, count in held.items() if count > least)
    poor = (each for each, count in held.items() if count <= least)
    quotas = dict.fromkeys(held, least)
    for each in islice(chain(rich, poor), larger):
        quotas[each] += 1
    return quotas


def _spread(all_held: list[UUID], count: int, first: int) -> list[UUID]:
    """Return so many at equal distances; `first` turns the places, which differ by member then."""
    size = len(all_held)
    return [all_held[(first + nth * size // count) % size] for nth in range(count)]


def _places(held: Mapping[str, int], quotas: Mapping[str, int]) -> Iterator[str]:
    """Yield each member as often as it holds fewer than its quota, those with the fewest first and
    by turns."""
    by_count: dict[int, list[str]] = {}
    for each, count in held.items():
        if count < quotas[each]:
            by_count.setdefault(count, []).append(each)
    level = min(by_count, default=0)
    unfilled = by_count.pop(level, [])
    while unfilled:
        yield from unfilled
        level += 1
        unfilled = [each for each in unfilled if quotas[each] > level]
        unfilled += by_count.pop(level, [])
        if not unfilled and by_count:
            level = min(by_count)
            unfilled = by_count.pop(level)


def _without(assignment: Assignment, given: list[Partition]) -> Assignment:
    gone: dict[UUID, set[int]] = {}
    for topic, partition in given:
        gone.setdefault(topic, set()).add(partition)
    left = {topic: held - gone.get(topic, set()) for topic, held in assignment.items()}
    return {topic: held for topic, held in left.items() if held}


def _with(assignment: Assignment, more: Mapping[UUID, set[int]]) -> Assignment:
    added = {topic: assignment.get(topic, frozenset()) | some for topic, some in more.items()}
    return {**assignment, **added}
