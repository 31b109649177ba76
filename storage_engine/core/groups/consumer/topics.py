"""The topics that a coordinator knows, and which of its groups subscribe to them by name.

The hash of a group's topics is the sum of the hashes of their ids and sizes, so that it does not
depend on an order and is the same in every process."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from storage_engine.core.groups.consumer.events import TopicShape

_BITS = 64
_MASK = (1 << _BITS) - 1
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number whose bits look random: a partition more changes many bits of the hash."""


class Topics:
    def __init__(self) -> None:
        self.shapes: Mapping[str, TopicShape] | None = None
        """All topics by name; None: nobody has told them yet. Never changed in place."""
        self.version = 0
        """Counts the changes after which a pattern may match other names."""
        self._groups: dict[str, dict[str, None]] = {}
        """The ids of the groups that subscribe to a topic, by name."""

    def change(self, shapes: Mapping[str, TopicShape], changed: Iterable[str]) -> dict[str, None]:
        """Take up new topics; return the groups that subscribe to one whose shape has changed."""
        before, self.shapes = self.shapes, shapes
        self.version += 1
        found: dict[str, None] = {}
        for name in self._groups if before is None else changed:
            if name in self._groups and (before is None or before.get(name) != shapes.get(name)):
                found.update(self._groups[name])
        return found

    def subscribe(self, group_id: str, name: str) -> None:
        self._groups.setdefault(name, {})[group_id] = None

    def unsubscribe(self, group_id: str, name: str) -> None:
        groups = self._groups[name]
        del groups[group_id]
        if not groups:
            del self._groups[name]

    def of(self, names: Iterable[str]) -> dict[str, TopicShape]:
        """Return those of the topics that exist."""
        shapes = self.shapes or {}
        found = ((name, shapes.get(name)) for name in names)
        return {name: shape for name, shape in found if shape is not None}


class SeenTopics(NamedTuple):
    """The existing topics that a group subscribes to, in three numbers."""

    hash: int
    """A number of 64 bits, with sign; 0 for no topics."""
    topics: int
    partitions: int


def seen(shapes: Collection[TopicShape]) -> SeenTopics:
    total = 0
    for topic_id, partitions in shapes:
        number = topic_id.int
        total += (number ^ number >> _BITS) * (partitions * _SPREAD | 1)
    total &= _MASK
    signed = total - (1 << _BITS) if total >> (_BITS - 1) else total
    return SeenTopics(signed, len(shapes), sum(each.partitions for each in shapes))
