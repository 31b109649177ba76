"""The background threads that do one kind of work for clients, and the order in which they do it.

Each kind has a few threads, so that it leaves some to the others and to the flushes. Clients take
turns by what their work has used (`FairQueue`), and a principal never has all threads of a kind.
"""

from collections.abc import Callable
from typing import TypeVar

from storage_engine.core.fair_queue import FairQueue, Share
from storage_engine.core.ports import Background
from storage_engine.net.connection import Connection

Result = TypeVar("Result")


def share_of(connection: Connection, shared_as: str | None = None) -> Share:
    """(the connection's principal, or `shared_as`; its address; its number)"""
    return shared_as or connection.principal, connection.peer_host, connection.number


class SharedThreads:
    """A fixed number of threads for one kind of work. To be used on the event loop."""

    def __init__(self, background: Background, *, at_once: int, each: int | None = None) -> None:
        """`each`: the most threads that one principal uses at a time; None: all of them."""
        self.background = background
        self._at_once = at_once
        self._queue: FairQueue[Callable[[], None]] = FairQueue(each)
        self._under_way = 0
        self._is_beginning = False

    def submit(
        self,
        share: Share,
        work: Callable[[], Result],
        on_done: Callable[[Result], None],
        on_error: Callable[[Exception], None],
        *,
        size: int = 1,
        more: Callable[[Result], int] = lambda _result: 0,
    ) -> None:
        """Run `work` when it is the turn of its share; one of the callbacks follows on the loop.
        `size`: its bytes as far as they are known; `more`: the bytes known at its end."""

        def done(result: Result) -> None:
            self.ended(share, more(result))
            on_done(result)

        def failed(error: Exception) -> None:
            self.ended(share)
            on_error(error)

        self.when_its_turn(share, lambda: self.background.submit(work, done, failed), size=size)

    def when_its_turn(self, share: Share, begin: Callable[[], None], *, size: int = 1) -> None:
        """Call `begin` when there is a thread for it, which it has until `ended` is called."""
        self._queue.put(share, begin, size)
        self._begin()

    def ended(self, share: Share, more: int = 0) -> None:
        """Free a thread; the work has used `more` beside its size."""
        self._under_way -= 1
        self._queue.done(share, more)
        self._begin()

    def _begin(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            while self._under_way < self._at_once:
                taken = self._queue.take()
                if taken is None:
                    return
                self._under_way += 1
                taken[1]()
        finally:
            self._is_beginning = False
