"""Notifies the fetch sessions of followers of changed partitions, so that a fetch costs what has
changed and not what the follower has. Source: R-REP2, KIP-227.
"""

from typing import Protocol

from storage_engine.broker.unexpected import guarded


class FollowerWatch(Protocol):
    """The place of one partition in a follower's session."""

    def note(self) -> None:
        """Check the partition before the next answer: the follower does not know all of it."""
        ...

    def wake(self) -> None:
        """Like `note`; a waiting fetch is answered if there are records, or another leader."""
        ...


class FollowerWatches:
    """The watches of one partition, at most one for each replica: a replica fetches it over one
    channel at a time, so that a newer session takes the place of one that its follower has left."""

    __slots__ = ("_by_replica",)

    def __init__(self) -> None:
        self._by_replica: dict[int, FollowerWatch] = {}

    def put(self, replica: int, watch: FollowerWatch) -> None:
        """Notify this watch from now on; the one before it is notified of its end."""
        before = self._by_replica.get(replica)
        self._by_replica[replica] = watch
        if before is not None and before is not watch:
            before.note()

    def has(self, replica: int, watch: FollowerWatch) -> bool:
        return self._by_replica.get(replica) is watch

    def discard(self, replica: int, watch: FollowerWatch) -> None:
        """Remove the watch; harmless when another one has its place by now."""
        if self._by_replica.get(replica) is watch:
            del self._by_replica[replica]

    def note(self) -> None:
        for watch in self._by_replica.values():
            watch.note()

    def wake(self) -> None:
        if self._by_replica:
            for watch in list(self._by_replica.values()):
                # A fetch that fails is answered when its time is over; the others now.
                guarded("a follower's fetch", watch.wake)
