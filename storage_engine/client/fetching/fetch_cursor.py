"""The reading position in one partition.

The position moves by whole batches only, and never back.
"""

from storage_engine.client.fetching.fetch_window import LEAST_FETCH_BYTES
from storage_engine.client.fetching.fetched_parts import WholeBatches, is_framed
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.typed.projection import TypedWant


class Cursor:
    """`position` is the next offset to read; `end_offset` is exclusive, None for no end."""

    __slots__ = (
        "_attempts",
        "_error",
        "_failing_since_ms",
        "_high_watermark",
        "_last_batch_bytes",
        "_offset_bytes",
        "_waiting_since_ms",
        "end_offset",
        "in_flight",
        "last_epoch",
        "leader_epoch",
        "leader_unsure",
        "paused",
        "position",
        "retry_at_ms",
        "tp",
        "typed_want",
    )

    def __init__(
        self,
        tp: TopicPartition,
        start_offset: int,
        end_offset: int | None,
        *,
        last_epoch: int = -1,
        offset_bytes: float = 0,
        typed_want: TypedWant | None = None,
    ) -> None:
        """`offset_bytes`: how much an offset is guessed to need, 0 where there is no guess.
        `typed_want`: what is asked for of a topic with a schema, None for records."""
        self.tp = tp
        self.typed_want = typed_want
        # The leader epoch of the last batch that was read, -1 where that is not known: by it a
        # leader notices that it never had that batch.
        self.last_epoch = last_epoch
        self.position = start_offset
        self.end_offset = end_offset
        self.in_flight = False
        self.paused = False
        self.leader_epoch = -1
        # The leader has answered with an error or not at all: ask for the metadata first.
        self.leader_unsure = False
        self.retry_at_ms = 0
        self._attempts = 0
        self._error: HeadraceError | None = None
        self._failing_since_ms = 0
        # Nothing new below the end since then; 0 while there is.
        self._waiting_since_ms = 0
        self._high_watermark = -1
        self._offset_bytes = offset_bytes
        self._last_batch_bytes = 0

    @property
    def framed(self) -> bool:
        """Whether answers are frames of a projection."""
        return is_framed(self.typed_want)

    @property
    def done(self) -> bool:
        return self.end_offset is not None and self.position >= self.end_offset

    def wants_fetch(self, now_ms: int) -> bool:
        waits = self.done or self.in_flight or self.paused
        return not waits and now_ms >= self.retry_at_ms

    def limit(self, most_bytes: int) -> int:
        """Bytes to ask for: not much more than lies before the end, because the rest would be
        thrown away."""
        if self.end_offset is None or not self._offset_bytes:
            return most_bytes
        expected = int((self.end_offset - self.position) * self._offset_bytes * 17 / 16)
        return min(most_bytes, max(expected + self._last_batch_bytes, LEAST_FETCH_BYTES))

    def advance(self, records: memoryview | None, high_watermark: int) -> memoryview | None:
        """An answer without an error: moves on, and returns its whole batches, None where there is
        none."""
        self.in_flight = False
        self._attempts = 0
        self._error = None
        self._high_watermark = high_watermark
        whole = None if records is None else WholeBatches.of(records, framed=self.framed)
        if whole is None:
            self._waiting_since_ms = self._waiting_since_ms or monotonic_ms()
            return None
        self._waiting_since_ms = 0
        if whole.next_offset > self.position:
            self._offset_bytes = len(whole.records) / (whole.next_offset - self.position)
            self._last_batch_bytes = whole.last_batch_bytes
        self.position = max(self.position, whole.next_offset)
        self.last_epoch = whole.last_epoch
        return whole.records

    def failed(self, error: HeadraceError, *, leader_is_known: bool = False) -> None:
        """Marks the partition to be retried after a pause and a metadata refresh, or at once where
        the error came with the new leader."""
        self.in_flight = False
        self.leader_unsure = not leader_is_known
        now_ms = monotonic_ms()
        if self._error is None:
            self._failing_since_ms = now_ms
        self._error = error
        self.retry_at_ms = now_ms if leader_is_known else now_ms + pause_ms(self._attempts)
        self._attempts += not leader_is_known

    def failing_ms(self) -> int:
        """How long the partition has failed without interruption."""
        return 0 if self._error is None else monotonic_ms() - self._failing_since_ms

    def stuck(self, timeout_ms: int) -> str | None:
        """Why there is no use in waiting longer; None while there is."""
        if self.done or self.paused:
            return None
        if self._error is not None:
            return str(self._error) if self.failing_ms() >= timeout_ms else None
        if self.end_offset is None or not self._waiting_since_ms:
            return None
        if monotonic_ms() - self._waiting_since_ms < timeout_ms:
            return None
        return (
            f"{self.tp}: offset {self.position} has not come, the log can be read up to "
            f"{self._high_watermark} and {self.end_offset} is asked for"
        )
