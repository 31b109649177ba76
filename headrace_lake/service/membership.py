"""The instance's membership in the group of a lake, by which instances share partitions.

The group only says who should write. That nobody else does is the promise of the tables: what a
partition's former owner still commits makes the commit of the new one fail, and the other way
round. Offsets that are committed to the group are for tools that show lag; the lake reads none.
"""

import logging
from collections.abc import Collection, Iterator, Mapping

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import (
    ConsumerCoordinator,
    OffsetsCommitted,
)
from storage_engine.client.consumer.membership import Assigned, GroupFailed, Revoked
from storage_engine.client.consumer.subscription import Subscription
from storage_engine.client.groups.group_requests import (
    NOBODY,
    CommitRefusedError,
    MemberIdentity,
)
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

_CLOSE_MS = 5_000

log = logging.getLogger(__name__)


class Membership:
    """For one thread; a second one, of its own, keeps the membership."""

    def __init__(self, config: ConsumerConfig) -> None:
        """`config`: with a `group.id`, and the classic protocol."""
        self._group = ConsumerCoordinator(config)
        self._topics: frozenset[str] = frozenset()
        self._caller: MemberIdentity = NOBODY
        self._owned: frozenset[TopicPartition] = frozenset()
        self._failing: str | None = None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of this instance."""
        return self._owned

    def subscribe(self, topics: Collection[str]) -> None:
        """Share these topics, and no others."""
        wanted = frozenset(topics)
        if wanted == self._topics:
            return
        self._topics = wanted
        if wanted:
            self._group.subscribe(Subscription(topics=wanted))
        else:
            self._group.unsubscribe()
            self._owned = frozenset()

    def changes(self) -> Iterator[frozenset[str]]:
        """The topics whose partitions have changed since, each time that some have: those of this
        instance are in `owned`. HeadraceError where the group refuses the instance for good.

        While the group gathers anew, an instance goes on with what it had: most of it will be its
        own again, and the tables keep out what is not.
        """
        while (change := self._group.next_change()) is not None:
            before = self._owned
            match change:
                case Revoked():
                    if change.lost:
                        self._owned = frozenset()
                    self._group.released(change.partitions)
                case Assigned():
                    self._caller = change.caller
                    self._owned = frozenset(change.partitions)
                case GroupFailed():
                    raise change.error
                case OffsetsCommitted():
                    change.callback(change.error)
            if before != self._owned:
                yield frozenset(tp.topic for tp in before ^ self._owned)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell the group how far tables are; one that can't be told is told of the next commit."""
        owned = {tp: offset for tp, offset in offsets.items() if tp in self._owned}
        if owned:
            self._group.commit(owned, self._caller, self._told)

    def _told(self, error: HeadraceError | None) -> None:
        if isinstance(error, CommitRefusedError):
            # The group gathers anew.
            return
        line = None if error is None else str(error)
        if line is not None and line != self._failing:
            log.warning("offsets were not committed to the group: %s", line)
        self._failing = line

    def close(self) -> None:
        """Leave the group, so that others need not wait for the end of the session."""
        self._group.close(_CLOSE_MS)
