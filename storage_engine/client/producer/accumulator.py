"""Collects records into batches.

    add -> open batch of its partition -> closed (full, or followed by a table) -> taken in order
                                       -> open, but lingered long enough        -> taken

Batches of one partition are taken in the order in which they were begun, and an open one only when
nothing of its partition waits to be sent, so that batches grow while brokers are slow. There are
neither threads nor clocks in here: the caller has both. R-CLI1, R-CLI7.
"""

from collections import deque
from collections.abc import Callable, Iterator

from storage_engine.client.changed import Changed
from storage_engine.client.producer.producer_batch import ProducerBatch
from storage_engine.core.ids import TopicPartition


class _Queue(deque[ProducerBatch]):
    """The batches of a partition; only the last may be open."""

    is_dropped = False
    """True once the accumulator has removed the queue."""


class Accumulator:
    """Open and closed batches by partition. `batch_bytes` and `linger_ms` are `batch.size` and
    `linger.ms`; times are monotonic milliseconds. `changed`: the loop's, whose lock callers hold; a
    handler may have interrupted any call in here, and use it, too."""

    def __init__(self, changed: Changed, *, batch_bytes: int, linger_ms: int) -> None:
        self._changed = changed
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._queues: dict[TopicPartition, _Queue] = {}
        self._flush = False

    def room_for(self, tp: TopicPartition, size: int, now_ms: int) -> tuple[ProducerBatch, bool]:
        """The open batch for a record of `size` bytes, and whether a batch was begun or closed, so
        that `take` should be called."""
        while True:
            queue = self._queues.get(tp) or self._queues.setdefault(tp, _Queue())
            if queue and not queue[-1].closed:
                last = queue[-1]
                if last.size + size <= self._batch_bytes:
                    return last, False
                last.closed = True
            batch = ProducerBatch(tp, now_ms, self._changed)
            # Until it is in the queue without a call: see `loop`.
            if not queue.is_dropped and (not queue or queue[-1].closed):
                queue += (batch,)
                return batch, True

    def filled(self, batch: ProducerBatch) -> bool:
        """Whether the batch is full by now; it is closed then."""
        if batch.size < self._batch_bytes:
            return False
        batch.closed = True
        return True

    def queue_behind(self, tp: TopicPartition) -> "_Queue":
        """The queue of a partition for a batch that the caller has encoded, behind the records that
        came before it. It may be dropped before the caller has put it there."""
        queue = self._queues.setdefault(tp, _Queue())
        if queue:
            queue[-1].closed = True
        return queue

    def take(
        self, now_ms: int, waiting: Callable[[TopicPartition], bool]
    ) -> Iterator[ProducerBatch]:
        """Batches to send now. `waiting` says whether a batch of a partition still waits to be
        sent."""
        for tp, batches in list(self._queues.items()):
            while batches and (batches[0].closed or self._lingered(batches[0], now_ms, waiting)):
                batch = batches.popleft()
                batch.taken = True
                # Its first record is on its way to it, and goes to another one.
                if batch.records or batch.encoded is not None:
                    yield batch
            if not batches:
                batches.is_dropped = True
                del self._queues[tp]
        if not self._queues:
            self._flush = False

    def due_in_ms(self, now_ms: int, waiting: Callable[[TopicPartition], bool]) -> int | None:
        """The time until `take` has something, as far as that is a matter of time; 0: now."""
        first = None
        for tp, batches in self._queues.items():
            if not batches:
                # Its first batch is on its way to it: whoever brings it wakes the loop then.
                continue
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
        self._flush = bool(self._queues)

    def drop(self) -> None:
        """Removes everything without sending it."""
        for queue in self._queues.values():
            queue.is_dropped = True
            for batch in queue:
                batch.closed = True
        self._queues.clear()
        self._flush = False

    def __bool__(self) -> bool:
        return bool(self._queues)
