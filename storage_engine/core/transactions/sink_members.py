"""One task attempt of the exactly-once sink, as its coordinator keeps it."""

from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import LedgerKey, MemberRecord

Batch = tuple[LedgerKey, int]


class SinkMember:
    """One task attempt, with all records that were appended for it."""

    __slots__ = ("record", "seen_at", "unmarked")

    def __init__(self, record: MemberRecord, seen_at: int) -> None:
        self.record = record
        self.seen_at = seen_at
        """The number of its newest record."""
        self.unmarked: set[TopicPartition] | None = None
        """The partitions that have not acknowledged the marker; None while the transaction is
        open."""

    @property
    def batch(self) -> Batch:
        return self.record.ledger, self.record.batch
