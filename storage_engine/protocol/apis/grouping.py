"""Flat lists of partitions turned into lists by topic, as the wire has them."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class OfTopic(Protocol):
    """Anything that belongs to a topic."""

    @property
    def topic(self) -> str: ...


Item = TypeVar("Item", bound=OfTopic)


def group_runs(items: Iterable[Item]) -> list[tuple[str, list[Item]]]:
    """Return runs of the same topic: the order of the items is kept, so a topic may come twice."""
    groups: list[tuple[str, list[Item]]] = []
    last: str | None = None
    for item in items:
        topic = item.topic
        if topic != last:
            groups.append((topic, []))
            last = topic
        groups[-1][1].append(item)
    return groups


def group_by_topic(items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    """Return each topic once, in the order in which it first comes."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.topic, []).append(item)
    return list(groups.items())
