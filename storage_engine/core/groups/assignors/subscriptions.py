"""Reads what members subscribe to and hold, in the same order whatever that of the mappings."""

from collections.abc import Mapping
from uuid import UUID

from storage_engine.core.groups.assignors.assignment import Assignment, SubscribedMember


def by_subscription(
    members: Mapping[str, SubscribedMember], partitions: Mapping[UUID, int]
) -> dict[frozenset[UUID], list[str]]:
    """Return the ids of members by the existing topics that they subscribe to, sorted; members
    without such a topic are left out."""
    by_topics: dict[frozenset[UUID], list[str]] = {}
    for member_id, member in members.items():
        # A few objects stand for the subscriptions of many members, which are compared by them.
        by_topics.setdefault(member.topics, []).append(member_id)
    found: dict[frozenset[UUID], list[str]] = {}
    for topics, member_ids in by_topics.items():
        existing = frozenset(topic for topic in topics if partitions.get(topic, 0) > 0)
        if existing:
            found.setdefault(existing, []).extend(member_ids)
    return {topics: sorted(member_ids) for topics, member_ids in found.items()}


class Claims:
    """Which partitions have an owner. Of two members that hold one partition, as damaged records
    may say, the first keeps it."""

    def __init__(self, partitions: Mapping[UUID, int]) -> None:
        self._partitions = partitions
        self._taken: dict[UUID, set[int]] = {}

    def keep(self, current: Assignment, topics: frozenset[UUID]) -> Assignment:
        """Claim what a member holds of these existing topics, and return it; the same object when
        that is all it holds."""
        kept: dict[UUID, frozenset[int]] = {}
        is_whole = True
        for topic, held in current.items():
            if topic not in topics or not held:
                is_whole = False
                continue
            taken = self._taken.setdefault(topic, set())
            mine = held
            if max(mine) >= self._partitions[topic]:
                mine = frozenset(each for each in mine if each < self._partitions[topic])
            if not taken.isdisjoint(mine):
                mine -= taken
            is_whole = is_whole and mine is held
            if mine:
                taken |= mine
                kept[topic] = mine
        return current if is_whole else kept

    def unclaimed(self, topic: UUID) -> list[int]:
        taken = self._taken.get(topic, ())
        return [each for each in range(self._partitions[topic]) if each not in taken]
