"""The content of a fetch's answer: whole batches as they are stored, or frames of a projection."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.fetched_parts import committed
from storage_engine.protocol.records.record_batch import HEADER_BYTES, LENGTH_END, read_header
from storage_engine.protocol.typed.frames import last_frame
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


def is_framed(want: TypedWant | None) -> bool:
    """Whether the answer to a fetch with this `want` has frames."""
    return want is not None and want.mode == WANT_FRAMES


class WholeBatches(NamedTuple):
    """An answer without its last batch, where the leader has cut that batch."""

    records: memoryview
    next_offset: int
    """The offset after the last batch."""
    last_batch_bytes: int
    last_epoch: int
    """The leader epoch of the last batch."""

    @classmethod
    def of(cls, records: memoryview, *, framed: bool = False) -> "WholeBatches | None":
        """Return None without a whole batch. `framed`: `records` are frames of a projection."""
        return cls._of_frames(records) if framed else cls._of_batches(records)

    @classmethod
    def _of_batches(cls, records: memoryview) -> "WholeBatches | None":
        start = end = 0
        size = len(records)
        unpack = _LENGTH.unpack_from
        while end + HEADER_BYTES <= size:
            next_end = end + LENGTH_END + int(unpack(records, end + _LENGTH_AT)[0])
            if not end < next_end <= size:
                break
            start, end = end, next_end
        if not end:
            return None
        header = read_header(records, start)
        epoch = header.partition_leader_epoch
        return cls(records[:end], header.next_offset, end - start, epoch)

    @classmethod
    def _of_frames(cls, records: memoryview) -> "WholeBatches | None":
        # The decoder checks all frames.
        found = last_frame(records)
        if found is None:
            return None
        start, last = found
        return cls(records, last.next_offset, len(records) - start, last.leader_epoch)


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, from the one that holds `start_offset` on."""

    tp: TopicPartition
    records: memoryview
    """Lives as long as a view of it is held."""
    start_offset: int
    """The offset asked for; the first batch may begin before it."""
    next_offset: int
    """The offset of the next fetch, which is after the last batch."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions in the range; with read_committed."""
    last_epoch: int = -1
    """The leader epoch of the last batch."""
    typed_want: TypedWant | None = None
    """The columns and rows asked for of a topic with a schema; None: records."""

    @property
    def framed(self) -> bool:
        """Whether `records` are frames of a projection."""
        return is_framed(self.typed_want)

    def committed(self) -> Iterator[memoryview]:
        """The batches in pieces as large as can be, without those of aborted transactions."""
        return committed(self.records, self.aborted_transactions, framed=self.framed)
