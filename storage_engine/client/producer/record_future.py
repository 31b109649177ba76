"""The futures of records: thousands of them share the outcome of their batch.

A future behaves like a `concurrent.futures.Future`, also for `wait`, `as_completed` and asyncio. It
only refers to the outcome of its batch: a lock and a condition of its own would cost more than
everything else about a record. It gets them when something needs them, such as `wait`.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from storage_engine.client.changed import Changed
from storage_engine.client.producer.producer_errors import RefusedRecordsError
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

_log = logging.getLogger(__name__)

DoneCallback = Callable[[Future["RecordMetadata"]], object]


class RecordMetadata(NamedTuple):
    """Where the log has a record."""

    topic: str
    partition: int
    offset: int
    """-1 when no broker returned it: with acks=0, or when an old repetition was recognized."""


class BatchOutcome:
    """The outcome of a batch of records, once it is known. For any thread.

    Its lock is that of the loop which settles it: whoever waits for the loop in a signal handler
    has released what the interrupted call holds of it.
    """

    __slots__ = ("_callbacks", "_changed", "_lock", "_materialised", "base_offset", "done", "error")

    def __init__(self, changed: Changed) -> None:
        self._lock = changed.lock
        # Made by the first who waits.
        self._changed: Changed | None = None
        self._callbacks: list[tuple[RecordFuture, DoneCallback]] = []
        # Futures that have got a state of their own; the values are unused.
        self._materialised: dict[RecordFuture, None] = {}
        self.done = False
        self.base_offset = -1
        """-1 when no broker returned it."""
        self.error: HeadraceError | None = None
        """The error of the batch; see `error_of`."""

    def settle(self, base_offset: int, error: HeadraceError | None) -> None:
        """Say what became of the batch, once; callbacks are called in the order of the records."""
        with self._lock:
            self.base_offset, self.error = base_offset, error
            self.done = True
            materialised, callbacks = list(self._materialised), self._callbacks
            if self._changed is not None:
                self._changed.notify_all()
        for future in materialised:
            future.copy_outcome()
        for future, callback in sorted(callbacks, key=lambda each: each[0].index):
            try:
                _call(callback, future)
            except BaseException:  # noqa: BLE001 - sys.exit() in a callback: others wait
                _log.exception("a callback of %s failed", future)

    def abandon(self, error: HeadraceError) -> None:
        """Fail the batch in the child of a fork, where it can't be settled."""
        self.error, self.done = error, True

    def error_of(self, index: int) -> HeadraceError | None:
        """The error of the record at `index` of the batch."""
        error = self.error
        return error.of_record(index) if isinstance(error, RefusedRecordsError) else error

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it is known; False when the time is over."""
        deadline = None if timeout_s is None else Deadline.after(round(timeout_s * 1000))
        made = Changed(self._lock)
        with self._lock:
            if self._changed is None:
                self._changed = made
            with self._changed.waiting() as waiting:
                while not self.done and waiting.wait(deadline):
                    pass
            return self.done

    def add_callback(self, future: "RecordFuture", callback: DoneCallback) -> None:
        with self._lock:
            if not self.done:
                self._callbacks.append((future, callback))
                return
        _call(callback, future)

    def materialise(self, future: "RecordFuture") -> None:
        """Creates the state that `concurrent.futures` works with, once."""
        with self._lock:
            if future in self._materialised:
                return
            Future.__init__(future)
            future.set_running_or_notify_cancel()
            self._materialised[future] = None
            if self.done:
                future.copy_outcome()


class RecordFuture(Future[RecordMetadata]):
    """The future of a record. It is running from the start, so it can't be cancelled."""

    def __init__(self, tp: TopicPartition, outcome: BatchOutcome, index: int) -> None:
        # Not the parent's __init__, which makes a lock and a condition: see `__getattr__`.
        self._tp = tp
        self._outcome = outcome
        self.index = index
        """The place of the record in its batch."""

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that the parent's __init__ would have made."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._outcome.materialise(self)
        return object.__getattribute__(self, name)

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self._outcome.done

    def done(self) -> bool:
        return self._outcome.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits and returns where the record is. `timeout` is in seconds, then TimeoutError is
        raised."""
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        outcome = self._outcome
        if not outcome.done and not outcome.wait(timeout):
            raise TimeoutError
        # Without a call in the usual case, which costs by the record.
        return None if outcome.error is None else outcome.error_of(self.index)

    def add_done_callback(self, fn: DoneCallback) -> None:
        self._outcome.add_callback(self, fn)

    def copy_outcome(self) -> None:
        """Notifies waiters by the means of the parent class."""
        if (error := self._outcome.error_of(self.index)) is not None:
            self.set_exception(error)
        else:
            self.set_result(self._metadata())

    def _metadata(self) -> RecordMetadata:
        base_offset = self._outcome.base_offset
        offset = -1 if base_offset < 0 else base_offset + self.index
        return RecordMetadata(*self._tp, offset)


def _call(callback: DoneCallback, future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:  # noqa: BLE001 - it is the caller's, and others wait
        _log.exception("a callback of %s failed", future)
