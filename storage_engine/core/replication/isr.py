"""The in-sync replicas of a partition as its leader sees them: committed, or with one change
proposed.

At most one change is under way, and until its outcome is known every decision that could
acknowledge data uses the larger of the two sets (`maximal`). Source: R-REP4, KIP-497.
"""

from dataclasses import dataclass

from storage_engine.core.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """The ISR that the partition's state in ZooKeeper names."""

    members: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpand:
    """A caught-up follower has been proposed; it already counts for the high watermark."""

    members: frozenset[BrokerId]
    joining: BrokerId

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members | {self.joining}

    @property
    def proposed(self) -> frozenset[BrokerId]:
        return self.members | {self.joining}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrink:
    """The removal of laggards has been proposed; until it is accepted they still count."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        return self.members

    @property
    def proposed(self) -> frozenset[BrokerId]:
        return self.members - self.leaving


IsrState = CommittedIsr | PendingExpand | PendingShrink
