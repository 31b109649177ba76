"""Collects records into batches.

    add -> open batch of its partition -> closed (full, or followed by a table) -> taken in order
                                       -> open, but lingered long enough        -> taken

Batches of one partition are taken in the order in which they were begun, and an open one only when
nothing of its partition waits to be sent, so that batches grow while brokers are slow. There are
neither threads nor clocks in here: the caller has both. R-CLI1, R-CLI7.
"""

from collections import deque
from collections.abc import Callable, Iterator

from storage_engine.client.producer.producer_batch import ProducerBatch
from storage_engine.core.ids import TopicPartition


class Accumulator:
    """Open and closed batches by partition. `batch_bytes` and `linger_ms` are `batch.size` and
    `linger.ms`; times are monotonic milliseconds."""

    def __init__(self, *, batch_bytes: int, linger_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._batches: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._flush = False

    def room_for(self, tp: TopicPartition, size: int, now_ms: int) -> tuple[ProducerBatch, bool]:
        """The open batch for a record of `size` bytes, and whether a batch was begun or closed, so
        that `take` should be called."""
        batches = self._batches.setdefault(tp, deque())
        if batches and not batches[-1].closed:
            if batches[-1].size + size <= self._batch_bytes:
                return batches[-1], False
            batches[-1].closed = True
        batch = ProducerBatch(tp, now_ms)
        batches.append(batch)
        return batch, True

    def filled(self, batch: ProducerBatch) -> bool:
        """Whether the batch is full by now; it is closed then."""
        if batch.size < self._batch_bytes:
            return False
        batch.closed = True
        return True

    def add_encoded(self, batch: ProducerBatch) -> None:
        """Adds a batch that the caller has encoded, behind the records that came before it."""
        batches = self._batches.setdefault(batch.tp, deque())
        if batches:
            batches[-1].closed = True
        batches.append(batch)

    def take(
        self, now_ms: int, waiting: Callable[[TopicPartition], bool]
    ) -> Iterator[ProducerBatch]:
        """Batches to send now. `waiting` says whether a batch of a partition still waits to be
        sent."""
        for tp, batches in list(self._batches.items()):
            while batches and (batches[0].closed or self._lingered(batches[0], now_ms, waiting)):
                batch = batches.popleft()
                batch.taken = True
                yield batch
            if not batches:
                del self._batches[tp]
        if not self._batches:
            self._flush = False

    def due_in_ms(self, now_ms: int, waiting: Callable[[TopicPartition], bool]) -> int | None:
        """The time until `take` has something, as far as that is a matter of time; 0: now."""
        first = None
        for tp, batches in self._batches.items():
            if batches[0].closed:
                return 0
            if not waiting(tp):
                due_ms = 0 if self._flush else batches[0].begun_ms + self._linger_ms
                first = due_ms if first is None else min(first, due_ms)
        return None if first is None else max(0, first - now_ms)

    def _lingered(
        self,
        batch: ProducerBatch,
        now_ms: int,
        waiting: Callable[[TopicPartition], bool],
    ) -> bool:
        due = self._flush or batch.begun_ms + self._linger_ms <= now_ms
        return due and not waiting(batch.tp)

    def flush(self) -> None:
        """Ends the linger time of all records that are here."""
        self._flush = bool(self._batches)

    def drop(self) -> list[ProducerBatch]:
        """Removes everything without sending it."""
        dropped = [batch for batches in self._batches.values() for batch in batches]
        self._batches.clear()
        self._flush = False
        return dropped

    def __bool__(self) -> bool:
        return bool(self._batches)
