"""Assigns to members that subscribe to different topics: no move of one partition to another
subscriber of its topic would make the members' numbers of partitions more even, and a partition
that has an owner moves only for that.

What is free goes to the subscriber with the fewest, beginning with the topics that have the fewest
subscribers. Then topic after topic gives from its owner with the most to its subscriber with the
fewest while these differ by two or more: first what was free, then anything. What has moved goes
back where that leaves the numbers as even. So the sum of the squares of all numbers becomes
smaller, or fewer partitions have moved: there is an end, and `WORK` bounds the way to it. Members
with the same subscription share a heap, so the cost of a topic follows from the number of different
subscriptions, not of members. Source: KIP-848.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from storage_engine.core.groups.assignors.assignment import Assignment, SubscribedMember
from storage_engine.core.groups.assignors.subscriptions import Claims

WORK = 10_000_000
"""The work after which the assignment stays as even as it is by then, 2 to 4 s. 5,000 members that
each subscribe to other 75 of 100 topics take a tenth of it. Subscriptions that overlap in one topic
each, as a chain, take many rounds: those of a hundred topics with 1,000 partitions each up to a
fifth."""
VISIT_COSTS = 10
MOVE_COSTS = 10
"""In the time that one subscription or one owner of a topic takes."""

Held = dict[int, list[int]]
"""The partitions of one topic by the number of the member that has them."""


class _Loads:
    """How many partitions each member has, and the member with the fewest of each kind: of those
    with the same subscription."""

    def __init__(self, kinds: list[int]) -> None:
        """`kinds`: the kind of each member."""
        self._kinds = kinds
        self.of = [0] * len(kinds)
        self._heaps: list[list[tuple[int, int]]] = [[] for _ in range(max(kinds) + 1)]
        """By kind (load, member) for each load that a member has had; each present one is there."""
        for member, kind in enumerate(kinds):
            self._heaps[kind].append((0, member))

    def add(self, member: int, more: int) -> None:
        self.of[member] += more
        heappush(self._heaps[self._kinds[member]], (self.of[member], member))

    def move(self, owner: int, member: int) -> None:
        self.add(owner, -1)
        self.add(member, 1)

    def least(self, kind: int) -> tuple[int, int, int]:
        """Return the load, the number and the kind of the member with the fewest."""
        heap = self._heaps[kind]
        while self.of[heap[0][1]] != heap[0][0]:
            heappop(heap)
        return (*heap[0], kind)


class _Topic:
    """The partitions of one topic."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        """The kinds of members that subscribe to it."""
        self.subscribers = 0
        self.kept: Held = {}
        """By owner the partitions that have not moved."""
        self.fresh: Held = {}
        """By owner the partitions that were free, or have moved."""
        self.former: dict[int, int] = {}
        """By partition the member that it has moved from."""

    def all_held(self) -> Iterator[tuple[int, frozenset[int]]]:
        for owner in {**self.kept, **self.fresh}:
            yield owner, frozenset(self.kept.get(owner, []) + self.fresh.get(owner, []))

    def deal(self, free: list[int], loads: _Loads) -> None:
        least = [loads.least(kind) for kind in self.kinds]
        heapify(least)
        for partition in free:
            _, member, kind = least[0]
            self.fresh.setdefault(member, []).append(partition)
            loads.add(member, 1)
            heapreplace(least, loads.least(kind))

    def even_out(self, held: Held, loads: _Loads) -> int:
        """Give from `held`, one of the two tables, while it makes loads more even; return how many
        moved."""
        most = max((loads.of[owner] for owner in held), default=0)
        if most < 2 or most - min(loads.least(kind)[0] for kind in self.kinds) < 2:
            return 0
        # Who gives stays with one below the most at least, so nobody both gives and gets here, and
        # the two heaps hold for all that matters.
        owners = [(-loads.of[owner], owner) for owner in held]
        least = [loads.least(kind) for kind in self.kinds]
        heapify(owners)
        heapify(least)
        moved = 0
        while owners:
            owner = owners[0][1]
            fewest, member, kind = least[0]
            if loads.of[owner] - fewest < 2:
                break
            partition = held[owner].pop()
            self.fresh.setdefault(member, []).append(partition)
            if held is self.kept:
                self.former[partition] = owner
            loads.move(owner, member)
            moved += 1
            heapreplace(least, loads.least(kind))
            if held[owner]:
                heapreplace(owners, (-loads.of[owner], owner))
            else:
                del held[owner]
                heappop(owners)
        return moved

    def give_back(self, loads: _Loads) -> int:
        """Let those who have given more than others needed have it again; return how much moved."""
        moved = 0
        for owner, fresh in list(self.fresh.items()) if self.former else ():
            for partition in fresh.copy():
                former = self.former.get(partition, owner)
                if loads.of[owner] > loads.of[former]:
                    fresh.remove(partition)
                    self.kept.setdefault(former, []).append(partition)
                    del self.former[partition]
                    loads.move(owner, former)
                    moved += 1
            if not fresh:
                del self.fresh[owner]
        return moved


def assign_unevenly(
    members: Mapping[str, SubscribedMember],
    subscriptions: Mapping[frozenset[UUID], list[str]],
    partitions: Mapping[UUID, int],
) -> dict[str, Assignment]:
    """Assign to the members in `subscriptions`, which has their ids by the existing topics that
    they subscribe to."""
    member_ids = sorted(each for alike in subscriptions.values() for each in alike)
    numbers = {member_id: number for number, member_id in enumerate(member_ids)}
    kinds = [0] * len(member_ids)
    topics = {topic: _Topic() for topic in sorted(frozenset().union(*subscriptions))}
    for kind, (subscribed, alike) in enumerate(subscriptions.items()):
        for member_id in alike:
            kinds[numbers[member_id]] = kind
        for topic_id in subscribed:
            topics[topic_id].kinds.append(kind)
            topics[topic_id].subscribers += len(alike)
    loads = _Loads(kinds)
    claims = Claims(partitions)
    subscription_of = list(subscriptions)
    for number, member_id in enumerate(member_ids):
        kept = claims.keep(members[member_id].current, subscription_of[kinds[number]])
        loads.add(number, sum(map(len, kept.values())))
        for topic_id, held in kept.items():
            topics[topic_id].kept[number] = sorted(held)
    for topic_id, topic in sorted(topics.items(), key=lambda each: each[1].subscribers):
        topic.deal(claims.unclaimed(topic_id), loads)
    _even_out(list(topics.values()), loads)
    assigned: list[dict[UUID, frozenset[int]]] = [{} for _ in member_ids]
    for topic_id, topic in topics.items():
        for number, all_held in topic.all_held():
            assigned[number][topic_id] = all_held
    return {
        member_id: _same_or_new(members[member_id].current, assigned[number])
        for number, member_id in enumerate(member_ids)
    }


def _even_out(topics: list[_Topic], loads: _Loads) -> None:
    work = 0
    while work < WORK:
        moved = 0
        for topic in topics:
            work += VISIT_COSTS + len(topic.kinds) + len(topic.fresh)
            moved += topic.even_out(topic.fresh, loads)
        if not moved:
            for topic in topics:
                work += VISIT_COSTS + len(topic.kinds) + len(topic.kept)
                moved += topic.give_back(loads) + topic.even_out(topic.kept, loads)
        if not moved:
            return
        work += MOVE_COSTS * moved


def _same_or_new(current: Assignment, assigned: dict[UUID, frozenset[int]]) -> Assignment:
    return current if current == assigned else assigned
