"""The aborted transactions of a log, and the markers that are still needed, during one pass from
the log's start. The pass reports the batches in the order of their offsets, each once.

A marker is needed as long as the log has a batch of its transaction, even an empty one that only
keeps its producer's sequence: without it the transaction would be open again. Source: KIP-98,
KIP-534.
"""

from collections import deque
from collections.abc import Iterable

from storage_engine.core.transactions.partition_transactions import AbortedTransaction


class CleanedTransactions:
    """The transactions that one pass over a log has seen."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: by ascending last offset, all that overlap the offsets of the pass."""
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, deque()).append(each)
        self._with_data: set[int] = set()
        """Producers whose present transaction has data in the log."""

    def note_data(self, producer_id: int, base_offset: int) -> bool:
        """Record a transactional batch; return True when its transaction was aborted."""
        self._with_data.add(producer_id)
        aborted = self._current(producer_id, base_offset)
        return aborted is not None and aborted.first_offset <= base_offset

    def note_marker(self, producer_id: int, offset: int) -> tuple[bool, AbortedTransaction | None]:
        """Record a marker. Return whether the log still has data of its transaction, and, in that
        case, its entry for the transaction index if it was aborted.
        """
        if producer_id not in self._with_data:
            return False, None
        self._with_data.discard(producer_id)
        aborted = self._current(producer_id, offset)
        is_end = aborted is not None and aborted.last_offset == offset
        return True, aborted if is_end else None

    def _current(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the producer's first aborted transaction that ends at or after `offset`."""
        coming = self._aborted.get(producer_id)
        while coming and coming[0].last_offset < offset:
            coming.popleft()
        return coming[0] if coming else None
