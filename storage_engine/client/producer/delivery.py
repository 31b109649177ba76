"""Counts the batches and records that a writer has delivered to a partition."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class PartitionDelivery:
    """The acknowledged records of one partition. Offsets are -1 where the leader did not say (with
    acks=0, or for a repetition)."""

    first_offset: int = -1
    last_offset: int = -1
    batches: int = 0
    records: int = 0

    def add(self, base_offset: int, record_count: int) -> None:
        """Records that one more batch is acknowledged."""
        self.batches += 1
        self.records += record_count
        if base_offset >= 0:
            if self.first_offset < 0:
                self.first_offset = base_offset
            self.last_offset = max(self.last_offset, base_offset + record_count - 1)
