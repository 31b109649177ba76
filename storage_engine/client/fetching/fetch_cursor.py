"""The reading position in one partition, and the fetches that are under way for it.

The position moves by whole batches only, and never back. A fetch in its turn begins at the
position; one ahead of it at a guess, which only ever costs bytes or a round trip: batches that come
twice are cut off, and a hole before it is fetched by itself.
"""

import time
from collections import deque

from storage_engine.client.fetching.fetch_window import FetchWindow
from storage_engine.client.fetching.fetched_batches import (
    FetchedBatches,
    WholeBatches,
    is_framed,
)
from storage_engine.client.metadata import Leader
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.fetched_parts import without_read
from storage_engine.protocol.typed.projection import TypedWant


class Ask:
    """The offset and limits of a fetch for one partition."""

    __slots__ = (
        "answer",
        "cursor",
        "last_epoch",
        "leader",
        "sent_s",
        "start_offset",
        "stop_offset",
    )

    def __init__(
        self, cursor: "Cursor", leader: Leader, start_offset: int, stop_offset: int | None
    ) -> None:
        self.cursor = cursor
        self.leader = leader
        self.start_offset = start_offset
        self.stop_offset = stop_offset
        """The start of the next fetch under way, if this one fills the hole before it."""
        # The epoch of the batch before it, which is not known for a guess.
        self.last_epoch = cursor.last_epoch if start_offset == cursor.position else -1
        self.sent_s = time.perf_counter()
        self.answer: FetchPartitionResponse | None = None
        """The answer, if it has come before its turn."""

    def limit(self, most_bytes: int) -> int:
        """Return the number of bytes to ask for."""
        return self.cursor.window.limit(self.start_offset, self.stop_offset, most_bytes)


class Cursor:
    """`position` is the next offset to read; `end_offset` is exclusive, None for no end."""

    __slots__ = (
        "_attempts",
        "_error",
        "_failing_since_ms",
        "_high_watermark",
        "_waiting_since_ms",
        "_work_began_s",
        "agreed",
        "asks",
        "end_offset",
        "last_epoch",
        "leader_unsure",
        "paused",
        "position",
        "retry_at_ms",
        "tp",
        "typed_want",
        "window",
    )

    def __init__(
        self,
        tp: TopicPartition,
        start_offset: int,
        window: FetchWindow,
        *,
        typed_want: TypedWant | None = None,
        last_epoch: int = -1,
    ) -> None:
        """`typed_want`: the columns and rows of a topic with a schema, None for records.
        `last_epoch`: the leader epoch of the last batch that was read, -1 where that is not known:
        by it a leader notices that it never had that batch."""
        self.tp = tp
        self.typed_want = typed_want
        self.last_epoch = last_epoch
        self.position = start_offset
        self.end_offset = window.end_offset
        self.window = window
        self.asks: deque[Ask] = deque()
        """Fetches under way, or answered before their turn; in the order of their offsets."""
        self.agreed: Leader | None = None
        """The leader, in an epoch, that has answered last, and so has the records read before. A
        fetch ahead can't check that, and is sent to this leader only."""
        self.paused = False
        # The leader has answered with an error or not at all: ask for the metadata first.
        self.leader_unsure = False
        self.retry_at_ms = 0
        self._attempts = 0
        self._error: HeadraceError | None = None
        self._failing_since_ms = 0
        # Nothing new below the end since then; 0 while there is.
        self._waiting_since_ms = 0
        self._high_watermark = -1
        # When the answer came that the caller works on; None for an answer that is no measure.
        self._work_began_s: float | None = None

    @property
    def done(self) -> bool:
        return self.end_offset is not None and self.position >= self.end_offset

    # Requests out.

    @property
    def is_wanted(self) -> bool:
        return not (self.done or self.paused)

    def may_fetch(self, now_ms: int) -> bool:
        return self.is_wanted and now_ms >= self.retry_at_ms

    @property
    def is_missing(self) -> bool:
        """Whether nothing under way begins at the position or before it."""
        return not self.asks or self.asks[0].start_offset > self.position

    def ask_in_turn(self, leader: Leader) -> Ask:
        """Return the fetch that `is_missing` at the position."""
        stop = self.asks[0].start_offset if self.asks else None
        return Ask(self, leader, self.position, stop)

    def ask_ahead(self, leader: Leader) -> Ask | None:
        """Return a fetch behind the ones under way; None if there are enough, or no guess."""
        is_enough = len(self.asks) >= self.window.wanted_in_flight
        if not self.asks or is_enough or leader != self.agreed:
            return None
        start = self.window.next_start(self.position, self.asks[-1].start_offset)
        return None if start is None else Ask(self, leader, start, None)

    def add(self, ask: Ask) -> None:
        """Record a fetch that was sent."""
        if ask.stop_offset is None:
            self.asks.append(ask)
        else:
            self.asks.appendleft(ask)

    def drop_from(self, ask: Ask) -> None:
        """Drop a fetch without a usable answer, and the fetches behind it."""
        if ask in self.asks:
            while self.asks.pop() is not ask:
                pass

    # Answers in.

    def advance(self, ask: Ask, answer: FetchPartitionResponse) -> FetchedBatches | None:
        """Move the position by an answer without an error, in its turn; return its whole batches
        that were not read yet, None without any."""
        self.asks.remove(ask)
        self.agreed = ask.leader
        self._attempts = 0
        self._error = None
        self._high_watermark = answer.high_watermark
        records = answer.records
        assert records is None or isinstance(records, memoryview)
        framed = is_framed(self.typed_want)
        whole = None if records is None else WholeBatches.of(records, framed=framed)
        if whole is None:
            self._waiting_since_ms = self._waiting_since_ms or monotonic_ms()
            return None
        self._waiting_since_ms = 0
        self.window.reached(
            ask.start_offset,
            whole.next_offset,
            size=len(whole.records),
            last_batch=whole.last_batch_bytes,
        )
        start_offset, records = self.position, whole.records
        aborted = tuple(answer.aborted_transactions or ())
        if ask.start_offset < start_offset:
            records, aborted = without_read(records, aborted, start_offset, framed=framed)
            if not records:
                return None
        self.position = max(start_offset, whole.next_offset)
        self.last_epoch = whole.last_epoch
        return FetchedBatches(
            self.tp,
            records,
            start_offset,
            self.position,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            aborted,
            whole.last_epoch,
            self.typed_want,
        )

    def came(self, ask: Ask, came_s: float, size: int) -> None:
        """Record an answer of `size` bytes, which the caller gets now."""
        self.window.answered(came_s - ask.sent_s)
        self._work_began_s = came_s if self.window.is_full(size) else None

    def caller_is_back(self, now_s: float) -> None:
        """Record how long the caller has worked on the last answer."""
        if self._work_began_s is not None:
            self.window.worked(now_s - self._work_began_s)
            self._work_began_s = None

    def failed(self, error: HeadraceError, *, leader_is_known: bool = False) -> None:
        """Marks the partition to be retried after a pause and a metadata refresh, or at once where
        the error came with the new leader."""
        self.asks.clear()
        self._work_began_s = None
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
        """Return why it is useless to wait longer; None while it is not."""
        if not self.is_wanted:
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
