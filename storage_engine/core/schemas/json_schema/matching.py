"""The largest number of pairs in which no one stands twice."""

from collections.abc import Sequence


def largest_matching(edges: Sequence[Sequence[int]], count: int) -> int:
    """Return how many of the left can have a partner of their own; `edges` are the partners, below
    `count`, that each of them may have."""
    partner_of: list[int | None] = [None] * count
    return sum(_finds_partner(each, edges, partner_of) for each in range(len(edges)))


def _finds_partner(
    start: int, edges: Sequence[Sequence[int]], partner_of: list[int | None]
) -> bool:
    """Give `start` a partner, by a chain of exchanges if need be."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        left = waiting.pop()
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            holder = partner_of[right]
            if holder is None:
                _exchange(right, start, came_from, partner_of)
                return True
            waiting.append(holder)
    return False


def _exchange(
    right: int, start: int, came_from: dict[int, int], partner_of: list[int | None]
) -> None:
    while True:
        left = came_from[right]
        before = partner_of.index(left) if left in partner_of else None
        partner_of[right] = left
        if left == start or before is None:
            return
        right = before
