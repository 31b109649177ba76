"""The offsets at which the leader epochs of a log begin. Epochs and start offsets both strictly
increase.

Truncation depends on the offset at which an epoch ends. Source: KIP-101, KIP-279; R-REP8.
"""

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset that a leader of `epoch` wrote, or would have written."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch that is at most the requested one, with its exclusive `end_offset`; both -1
    when unknown.
    """

    epoch: int
    end_offset: int


UNDEFINED_END = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The epochs of one log, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        """Entries that contradict earlier ones, as a torn checkpoint can have them, are dropped."""
        self._entries: list[EpochStart] = []
        for epoch, start_offset in entries or ():
            if epoch >= 0 and start_offset >= 0 and self._extends(epoch, start_offset):
                self._entries.append(EpochStart(epoch, start_offset))

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 when there is none."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; return True when that changed anything.

        A known latest epoch keeps its start. Entries of later epochs or offsets belong to a history
        that was truncated, and are dropped.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where `epoch` ends, as OffsetForLeaderEpoch answers it.

        The latest epoch ends at the log's end; an older one where the next begins; one newer than
        the latest is undefined. For an epoch without records here, the answer names the largest one
        below it (KIP-279); for one older than all, itself with the start of the first known epoch,
        which may lie below the log's start.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_END
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(entries, epoch, key=_epoch_of)
        if following == 0:
            return EpochEnd(epoch, entries[0].start_offset)
        return EpochEnd(entries[following - 1].epoch, entries[following].start_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 when unknown."""
        preceding = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[preceding - 1].epoch if preceding else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or after `end_offset`; return True when that changed
        anything."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        changed = len(kept) != len(self._entries)
        self._entries = kept
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs that ended below the log's new start; return True when that changed
        anything.

        The epoch of the last deleted offset stays, with its own start. Kafka moves that start up,
        and then can't tell a replica that has other batches below the log's start from one that
        agrees: it would keep them, with what they say of their producers.
        """
        preceding = bisect_right(self._entries, start_offset - 1, key=_start_of)
        if preceding <= 1:
            return False
        self._entries = self._entries[preceding - 1 :]
        return True

    def clear(self) -> None:
        self._entries = []

    def _extends(self, epoch: int, start_offset: int) -> bool:
        if not self._entries:
            return True
        last = self._entries[-1]
        return epoch > last.epoch and start_offset > last.start_offset


def _epoch_of(entry: EpochStart) -> int:
    return entry.epoch


def _start_of(entry: EpochStart) -> int:
    return entry.start_offset
