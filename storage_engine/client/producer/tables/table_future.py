"""The outcome of sending an Arrow table."""

import functools
from concurrent.futures import Future
from typing import NamedTuple

from storage_engine.client.changed import Changed
from storage_engine.client.producer.produce_queue import OnDone
from storage_engine.core.errors import HeadraceError


class TableMetadata(NamedTuple):
    """Where the log has the rows of a table."""

    rows: int
    batches: int
    last_offsets: dict[int, int]
    """The offset of the last row in each partition, -1 when no broker returned it."""


TableFuture = Future[TableMetadata]


class TableProgress:
    """Gathers the outcomes of the table's batches, from two threads: the one that sends the table,
    and that of the producer's loop."""

    def __init__(self, changed: Changed) -> None:
        """`changed`: the loop's, for the reason that `BatchOutcome` gives."""
        self.future: TableFuture = Future()
        self.future.set_running_or_notify_cancel()
        self._lock = changed.lock
        # Batches that have no outcome yet, and one more until all of them are begun.
        self._open = 1
        self._rows = self._batches = 0
        self._last_offsets: dict[int, int] = {}
        self._error: HeadraceError | None = None

    def begin(self, partition: int, record_count: int) -> OnDone:
        """Records that one more batch is sent, and returns the callback for its outcome."""
        with self._lock:
            self._open += 1
        return functools.partial(self._settle, partition, record_count)

    def _settle(
        self, partition: int, record_count: int, base_offset: int, error: HeadraceError | None
    ) -> None:
        with self._lock:
            if error is not None:
                self._error = self._error or error
            else:
                self._rows += record_count
                self._batches += 1
                last = base_offset + record_count - 1 if base_offset >= 0 else -1
                known = self._last_offsets.get(partition, -1)
                self._last_offsets[partition] = max(known, last)
        self.end()

    def end(self) -> None:
        """A batch has its outcome, or no more batches will be begun."""
        with self._lock:
            self._open -= 1
            if self._open:
                return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(TableMetadata(self._rows, self._batches, self._last_offsets))
