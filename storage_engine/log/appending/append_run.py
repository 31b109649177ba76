"""Appends of producers that are written together. Its one rule: each append has the outcome that it
would have had alone.

Producers with many small requests under way would else cost a write each. Only what needs no look
at the state that the append before it leaves behind may wait with it for the write: batches without
a producer id, and the next batch of the producer of the last one, outside transactions. Source:
R-LOG12, KIP-98.
"""

from storage_engine.core.errors import KafkaError
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.log.files.disk import Buffer
from storage_engine.log.segments.placing import PlacedBatch
from storage_engine.protocol.records.record_batch import MAX_SEQUENCE, BatchHeader

JOINED_MEAN_BYTES = 32 << 10
"""Parts that are larger on average are written one by one: their copy costs more than their writes,
and memory for a mebibyte comes fresh from the system each time."""


class AppendRun:
    """The outcomes so far, and what has its place in the log but is not written yet."""

    __slots__ = ("_append_time_ms", "_numbers", "end_offset", "outcomes", "parts", "placed", "size")

    def __init__(self, end_offset: int, append_time_ms: int) -> None:
        """`append_time_ms`: what the results tell, -1 for nothing."""
        self._append_time_ms = append_time_ms
        self.end_offset = end_offset
        """Where the next append goes."""
        self.outcomes: list[AppendResult | KafkaError] = []
        """Of each append in turn; what waits to be written counts as done."""
        self.parts: list[tuple[Buffer, list[PlacedBatch]]] = []
        """The appends that wait, with their batches."""
        self.placed: list[PlacedBatch] = []
        """All their batches."""
        self.size = 0
        # Which outcome belongs to each part.
        self._numbers: list[int] = []

    def goes_on_with(self, batches: list[tuple[int, BatchHeader]]) -> bool:
        """Whether these batches are fine as far as producers are concerned, whatever the log
        knows."""
        header = batches[0][1]
        if len(batches) > 1:
            return False
        if header.producer_id < 0:
            return True
        if not self.placed:
            return False
        before = self.placed[-1][1]
        return (
            before.producer_id == header.producer_id
            and not (before.is_transactional or header.is_transactional)
            and before.producer_epoch == header.producer_epoch
            and (before.last_sequence + 1) & MAX_SEQUENCE == header.base_sequence
        )

    def add(self, records: memoryview, placed: list[PlacedBatch]) -> None:
        """Takes batches that stand at their offsets."""
        last_base, last_header = placed[-1]
        end_offset = last_base + last_header.last_offset_delta + 1
        size = len(records)
        outcomes = self.outcomes
        self._numbers.append(len(outcomes))
        fields = (placed[0][0], end_offset - 1, end_offset, self._append_time_ms, False, size)
        # As AppendResult(*fields), for a third of the time.
        outcomes.append(tuple.__new__(AppendResult, fields))
        self.parts.append((records, placed))
        self.placed += placed
        self.size += size
        self.end_offset = end_offset

    @property
    def is_worth_joining(self) -> bool:
        """Whether one write of all that waits costs less than one of each."""
        return self.size <= JOINED_MEAN_BYTES * len(self.parts)

    def joined(self) -> tuple[Buffer, list[PlacedBatch]]:
        """All parts as one."""
        if len(self.parts) == 1:
            return self.parts[0]
        return b"".join([records for records, _ in self.parts]), self.placed

    def fail_from(self, offset: int, failure: KafkaError) -> None:
        """What waits and was to begin at `offset` or later was not written."""
        for number, (_, placed) in zip(self._numbers, self.parts, strict=True):
            if placed[0][0] >= offset:
                self.outcomes[number] = failure

    def begin_anew(self, end_offset: int) -> None:
        """All that waited is written, or has failed."""
        self.parts, self.placed, self._numbers = [], [], []
        self.size = 0
        self.end_offset = end_offset
