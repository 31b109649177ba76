"""Goes through all states of a small world."""

from collections.abc import Callable, Iterable
from typing import TypeVar

StateT = TypeVar("StateT")


def explored(
    start: StateT,
    successors: Callable[[StateT], Iterable[StateT]],
    check: Callable[[StateT], None],
    *,
    most: int,
) -> set[StateT]:
    """All states that can be reached; `check` raises for one that is wrong."""
    seen = {start}
    frontier = [start]
    while frontier:
        following: list[StateT] = []
        for state in frontier:
            for successor in successors(state):
                if successor not in seen:
                    seen.add(successor)
                    check(successor)
                    following.append(successor)
        assert len(seen) <= most, f"{len(seen)} states: the world is too large for this test"
        frontier = following
    return seen
