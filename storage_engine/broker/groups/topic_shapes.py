"""All topics with their ids and numbers of partitions, as coordinators of groups are told them.

A snapshot is never changed: coordinators and their computations in other threads read it. What the
controller says is taken up some topics a turn, and the changes that come meanwhile are told with
it. The first order of a controller names the whole cluster; before it nothing is told, since every
topic would look deleted. Source: KIP-848.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.groups.consumer.events import TopicShape
from storage_engine.core.ports import Scheduler

Shapes = Mapping[str, TopicShape]


class TopicShapes:
    """The newest snapshot, and who hears of another."""

    def __init__(self, metadata: MetadataCache, scheduler: Scheduler) -> None:
        self._metadata = metadata
        self._scheduler = scheduler
        self._known: dict[str, TopicShape] | None = None
        self._names: frozenset[str] | None = None
        """The names of all topics; None: nobody has asked since the last change."""
        self._stale: dict[str, None] = {}
        """The topics that have to be looked at again."""
        self._are_all_stale = False
        self._is_busy = False
        self.on_changed: Callable[[Shapes, frozenset[str]], None] = lambda _shapes, _names: None
        """Called with each new snapshot and the names of the topics that have changed since the
        one before."""
        metadata.on_topics_named = self._note

    @property
    def known(self) -> Shapes | None:
        """None until the cluster is known."""
        return None if self._known is None else MappingProxyType(self._known)

    def names(self) -> frozenset[str]:
        """The names of all topics: many coordinators may begin at once, and share them."""
        if self._names is None:
            self._names = frozenset(self._known or ())
        return self._names

    def _note(self, names: Collection[str] | None) -> None:
        """Look at these topics again; None: at all."""
        if names is None:
            self._are_all_stale = True
        else:
            self._stale.update(dict.fromkeys(names))
        if not self._is_busy:
            self._is_busy = True
            steps = self._look()
            self._scheduler.call_soon(lambda: self._go_on(steps))

    def _go_on(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self._scheduler.call_soon(lambda: self._go_on(steps))
            return
        self._is_busy = False

    def _look(self) -> Iterator[None]:
        before = self._known or {}
        shapes, changed = before.copy(), set()
        while self._are_all_stale or self._stale:
            if self._are_all_stale:
                self._are_all_stale = False
                self._stale = dict.fromkeys([*shapes, *self._metadata.topics()])
            stale, self._stale = self._stale, {}
            for looked_at, name in enumerate(stale, 1):
                shape = self._shape(name)
                if shape == before.get(name):
                    changed.discard(name)
                else:
                    changed.add(name)
                if shape is not None:
                    shapes[name] = shape
                else:
                    shapes.pop(name, None)
                if looked_at % PIECE == 0:
                    yield
        if changed or self._known is None:
            self._known, self._names = shapes, None
            self.on_changed(MappingProxyType(shapes), frozenset(changed))

    def _shape(self, name: str) -> TopicShape | None:
        """The topic as the cluster has it now; None for one that is gone, or has no id of its
        own."""
        partitions = self._metadata.partitions(name)
        topic_id = self._metadata.topic_id(name)
        if not partitions or topic_id is None or not topic_id.int:
            return None
        count = len(partitions)
        if count - 1 not in partitions:
            # The controller tells a new topic partition by partition.
            count = next(number for number in range(count) if number not in partitions)
        return TopicShape(topic_id, count) if count else None
