"""Work that may wait for a store or for brokers, in threads beside the one that reads."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

THREADS = 12
"""So many tables of stores that hang may wait before tables of other stores wait, too."""

Done = Callable[[], None]
Result = TypeVar("Result")


class Jobs:
    """The results come back to the thread that asks for them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="headrace-lake")
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()

    def start(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Do `work` in a thread, and then, in the thread of `finish`, `then` with its result, or
        `failed` with its exception."""

        def ended(future: "Future[Result]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                result = future.result()
                self._done.put(lambda: then(result))
            elif isinstance(error, Exception):
                self._done.put(lambda: failed(error))

        self._pool.submit(work).add_done_callback(ended)

    def finish(self, wait_ms: int = 0) -> bool:
        """Take up what has ended, after a wait for the first; whether anything has."""
        found = False
        for done in self._ended(wait_ms):
            done()
            found = True
        return found

    def _ended(self, wait_ms: int) -> Iterator[Done]:
        with contextlib.suppress(queue.Empty):
            yield self._done.get(timeout=wait_ms / 1000) if wait_ms else self._done.get_nowait()
            while True:
                yield self._done.get_nowait()

    def close(self) -> None:
        """Begin nothing more; what is at work is waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)
