"""Work beside a test, in a thread. An error there fails the test."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Background:
    """`_work` is at work from the beginning of the block to its end."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        """Set when it is to end."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=type(self).__name__)
        self._future: Future[None] | None = None

    def __enter__(self) -> Self:
        self._future = self._pool.submit(self._work)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        if error is None:
            self.check()

    def end(self) -> None:
        """Waits until it has ended."""
        self._stop.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raises what it has died of."""
        if self._future is not None and self._future.done():
            self._future.result()

    def _work(self) -> None:
        """Until `_stop` is set; in the thread."""
        raise NotImplementedError
