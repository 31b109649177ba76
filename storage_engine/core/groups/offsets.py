"""The offsets of one group. Of two offsets for a partition the one that was written later counts,
and one in a transaction counts only once that is committed.

Source: KIP-98, KIP-211, KIP-447.
"""

from collections.abc import Collection, Mapping

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.groups.records import (
    NO_EXPIRY,
    NO_TIME,
    OffsetRecord,
    PlacedOffset,
)
from storage_engine.core.ids import TopicPartition


class CommittedOffsets:
    """The committed and pending offsets. Invariant: no transaction in `_pending` is without
    offsets."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, PlacedOffset] = {}
        self._pending: dict[int, dict[TopicPartition, PlacedOffset]] = {}
        """The offsets in open transactions, by producer id."""

    def __bool__(self) -> bool:
        return bool(self._committed or self._pending)

    @property
    def committed(self) -> Mapping[TopicPartition, OffsetRecord]:
        return {
            tp: placed.record
            for tp, placed in self._committed.items()
            if not isinstance(placed.record, UnreadableRecord)
        }

    @property
    def unreadable(self) -> set[TopicPartition]:
        """The partitions whose offset this version can't read."""
        return {
            tp
            for tp, placed in self._committed.items()
            if isinstance(placed.record, UnreadableRecord)
        }

    def get(self, tp: TopicPartition) -> OffsetRecord | None:
        return self.committed.get(tp)

    def put(self, tp: TopicPartition, placed: PlacedOffset) -> None:
        self._committed[tp] = placed

    def put_pending(self, producer_id: int, tp: TopicPartition, placed: PlacedOffset) -> None:
        self._pending.setdefault(producer_id, {})[tp] = placed

    def end_transaction(self, producer_id: int, *, commits: bool) -> bool:
        """Commit or drop the offsets of a transaction; return True when it had any."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return False
        for tp, placed in pending.items():
            known = self._committed.get(tp)
            if commits and (known is None or known.order < placed.order):
                self._committed[tp] = placed
        return True

    def remove(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Remove the offsets of partitions, committed or pending; return those that had one. Each
        transaction is looked at once, however many partitions a client names."""
        wanted = set(partitions)
        removed = {tp for tp in wanted if self._committed.pop(tp, None) is not None}
        for producer_id, pending in list(self._pending.items() if wanted else ()):
            dropped = [tp for tp in pending if tp in wanted]
            for tp in dropped:
                del pending[tp]
            removed.update(dropped)
            if not pending:
                del self._pending[producer_id]
        return removed

    def written_until(
        self, last_order: int, among: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return the partitions `among` these of which no offset was written later."""
        later = {
            tp
            for pending in (self._pending.values() if among else ())
            for tp, placed in pending.items()
            if placed.order > last_order
        }
        for tp in among:
            placed = self._committed.get(tp)
            if placed is not None and placed.order > last_order:
                later.add(tp)
        return [tp for tp in among if tp not in later]

    def partitions(self) -> set[TopicPartition]:
        """Return all partitions with an offset, committed or pending."""
        return {*self._committed, *(tp for pending in self._pending.values() for tp in pending)}

    def unstable(self) -> set[TopicPartition]:
        """Return the partitions with an offset in an open transaction."""
        return {tp for pending in self._pending.values() for tp in pending}

    def expired(
        self,
        among: Collection[TopicPartition],
        wall_ms: int,
        retention_ms: int,
        *,
        unused_since_ms: int = NO_TIME,
        but_for: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions `among` these whose offset was committed longer ago than
        `retention_ms`, and,
        with `unused_since_ms`, whose group has been unused for so long; topics in `but_for` are
        left out."""
        unstable = self.unstable()
        gone = []
        for tp in among:
            placed = self._committed.get(tp)
            if placed is None or tp in unstable or tp.topic in but_for:
                continue
            record = placed.record
            if isinstance(record, UnreadableRecord):
                continue
            if record.expire_ms != NO_EXPIRY:
                is_over = wall_ms >= record.expire_ms
            else:
                is_over = wall_ms - max(record.commit_ms, unused_since_ms) >= retention_ms
            if is_over:
                gone.append(tp)
        return gone
