"""The open transactions of one partition, and its last stable offset. The last stable offset never
passes a record whose transaction may still end either way.

    ongoing   first offset by producer id, from the first batch of a transaction to its marker
    ended     (first, last offset) of those whose marker may still be lost: it lies at or above
              the high watermark, so that another leader may not have it

    first unstable offset = the smallest first offset of both
    last stable offset    = min(high watermark, first unstable offset)

Producer ids for one transaction only. No batch with such an id follows its marker.

Each task attempt of the exactly-once sink has one. So logs forget such an id with its marker. Other
producers are remembered for a day after their last batch; with single-use ids that table would grow
with every task of every micro-batch. Late batches are refused by the partition's guard, which asks
the coordinator (`core.transactions.verification_guard`).

Source: KIP-98, the rule for `ended` is that of Kafka's "unreplicated transactions", R-SPARK2.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

ENDED_MAX = 1000
"""The most entries of `ended`: beyond, the two oldest are merged, as after a replay of a long log,
until the high watermark is known. The last stable offset is too low then, never too high."""

NO_COORDINATOR_EPOCH = -1


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in a partition (see protocol.control_record)."""

    commits: bool
    coordinator_epoch: int
    has_own_epoch: bool = False
    """True when no record of the transaction has the marker's epoch, but those of the next one will
    (KIP-890). It is not stored in the log."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as the transaction index and readers see it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """Every transaction with a record below this offset was decided when this one ended (as long as
    the high watermark is no bound)."""


class EndedTransaction(NamedTuple):
    """A transaction whose marker may not be on every replica yet."""

    first_offset: int
    last_offset: int


class PartitionTransactions:
    """Invariant: `ongoing` is in ascending order of first offsets; `ended` ascends in both
    columns."""

    __slots__ = ("_ended", "_ongoing")

    def __init__(
        self,
        ongoing: Iterable[tuple[int, int]] = (),
        ended: Iterable[EndedTransaction] = (),
    ) -> None:
        """`ongoing` has pairs (producer id, first offset)."""
        self._ongoing = dict(sorted(ongoing, key=lambda each: each[1]))
        self._ended = deque(ended)

    @property
    def ongoing(self) -> dict[int, int]:
        """The first offset by producer id; for reading only."""
        return self._ongoing

    @property
    def ended(self) -> tuple[EndedTransaction, ...]:
        return tuple(self._ended)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._ongoing

    def note_data(self, producer_id: int, base_offset: int) -> None:
        """Record a transactional batch: the first of a transaction opens it."""
        if producer_id not in self._ongoing:
            self._ongoing[producer_id] = base_offset

    def end(self, producer_id: int, marker_offset: int) -> AbortedTransaction | None:
        """Record a marker; return the transaction, with what is to be kept of it if it was aborted.

        Return None when the producer had none: a marker without data is harmless.
        """
        first_offset = self._ongoing.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = self._ended
        while ended and ended[-1].first_offset >= first_offset:
            # That entry is no bound any more: this one begins lower and ends later.
            ended.pop()
        ended.append(EndedTransaction(first_offset, marker_offset))
        if len(ended) > ENDED_MAX:
            oldest = ended.popleft()
            ended[0] = EndedTransaction(oldest.first_offset, ended[0].last_offset)
        stable = next(iter(self._ongoing.values()), marker_offset + 1)
        return AbortedTransaction(producer_id, first_offset, marker_offset, stable)

    def note_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions whose markers can't be lost any more."""
        ended = self._ended
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset, exclusive as the high watermark is: everything below is
        decided."""
        stable = high_watermark
        if self._ended:
            self.note_high_watermark(high_watermark)
            if self._ended:
                stable = min(stable, self._ended[0].first_offset)
        if self._ongoing:
            stable = min(stable, next(iter(self._ongoing.values())))
        return stable


SINGLE_USE_BIT = 1 << 62
"""Ordinary ids count from 0, and never get so high."""


def single_use(producer_id: int) -> int:
    """Return the single-use id with that number."""
    return producer_id | SINGLE_USE_BIT


def is_single_use(producer_id: int) -> bool:
    return producer_id & SINGLE_USE_BIT != 0 and producer_id > 0
