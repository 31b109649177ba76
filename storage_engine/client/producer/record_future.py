"""The futures of records, thousands of them a batch.

Rule: a future is a `concurrent.futures.Future` in all that it does, also for `wait`, `as_completed`
and asyncio; it only shares the condition of its batch, since all of a batch are done at once, and
the lock of its producer, so that whoever waits for several takes one lock. With a lock and a
condition of its own a future costs more than all else that is done for its record.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from typing import TYPE_CHECKING

from storage_engine.core.errors import HeadraceError

if TYPE_CHECKING:
    from storage_engine.client.producer.record_groups import RecordMetadata


class RecordFuture(Future["RecordMetadata"]):
    """Under way from the start: it can't be cancelled."""

    def __init__(self, condition: threading.Condition) -> None:
        # Not Future's own, which makes a condition; the attributes are the same.
        self._condition = condition
        self._state = RUNNING
        self._result = None
        self._exception = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[RecordMetadata]], object]] = []


def next_future(
    futures: Sequence[RecordFuture],
    lock: "threading.RLock",
) -> RecordFuture:
    """One more of a batch that has these; `lock` is the producer's."""
    return RecordFuture(futures[0]._condition if futures else threading.Condition(lock))


def resolve(
    futures: Sequence[RecordFuture], results: "Sequence[RecordMetadata] | HeadraceError"
) -> None:
    """Tell all of a batch, in their order; an error is the same for all."""
    if not futures:
        return
    condition = futures[0]._condition
    with condition:
        if isinstance(results, HeadraceError):
            for future in futures:
                future._exception = results
                future._state = FINISHED
                for waiter in future._waiters:
                    waiter.add_exception(future)
        else:
            for future, result in zip(futures, results, strict=True):
                future._result = result
                future._state = FINISHED
                for waiter in future._waiters:
                    waiter.add_result(future)
        condition.notify_all()
    for future in futures:
        if future._done_callbacks:
            future._invoke_callbacks()  # type: ignore[attr-defined]
