"""A stand-in for the broker's event loop, and the real clock."""

import queue
import time
from collections.abc import Callable

from storage_engine.core.ports import ZkReply

DEADLINE_S = 60.0


class HandLoop:
    """Runs what is posted to it, on the thread of the test, while the test waits for something."""

    def __init__(self) -> None:
        self._work: queue.Queue[Callable[[], None]] = queue.Queue()

    def call_soon(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def run_until(self, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        end_s = time.monotonic() + deadline_s
        while not condition():
            remaining_s = end_s - time.monotonic()
            assert remaining_s > 0, "the condition did not come true"
            try:
                work = self._work.get(timeout=min(remaining_s, 0.05))
            except queue.Empty:
                continue
            work()

    def run_for(self, duration_s: float) -> None:
        end_s = time.monotonic() + duration_s
        while (remaining_s := end_s - time.monotonic()) > 0:
            try:
                self._work.get(timeout=remaining_s)()
            except queue.Empty:
                return

    def reply_of(self, operation: Callable[..., None], *args: object, **options: object) -> ZkReply:
        """The reply of one operation; `on_reply` is passed by its name."""
        replies: list[ZkReply] = []
        operation(*args, on_reply=replies.append, **options)
        self.run_until(lambda: bool(replies))
        return replies[0]


class RealClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
