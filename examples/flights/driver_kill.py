"""Spark's driver is killed with SIGKILL in the midst of a micro-batch, and started again at once.

It is killed when the checkpoint says that a micro-batch is planned and not done, so that the next
driver has to write that batch once more. Only where no such moment was seen to the end of the
stream, it is killed between two.
"""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from examples.flights.stream import StreamProgress

KILL_AT = 0.6
"""Share of the records that is loaded by then, at least."""


class DriverControl(Protocol):
    """Runs the query; implemented by Stream."""

    progress: StreamProgress

    def batch_under_way(self) -> int | None: ...

    def kill_and_start_again(self) -> None: ...


class DriverKill:
    """The timeline; moments are of the monotonic clock, None until they come."""

    def __init__(self, stream: DriverControl, on_event: Callable[[str], None]) -> None:
        self._stream = stream
        self._on_event = on_event
        self.batch: int | None = None
        self.killed_at: float | None = None
        self.again_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether another driver runs the query."""
        return self.again_at is not None

    def step(self, share: float, *, last_chance: bool = False) -> None:
        """Checks the stream and does the next step; `share` of the records (0 to 1) is loaded."""
        progress = self._stream.progress
        if self.killed_at is None:
            if share >= KILL_AT and progress.batches:
                self.batch = self._stream.batch_under_way()
                if self.batch is not None or last_chance:
                    self._kill()
        elif self.again_at is None and progress.starts > 1:
            self.again_at = time.monotonic()
            self._on_event("the next driver runs the query, from its checkpoint")

    def rows(self) -> Iterator[tuple[str, str]]:
        """The timeline as the rows of a table."""
        if self.killed_at is None:
            return
        again = "" if self.batch is None else ", which the next driver wrote again"
        yield "driver killed", self._where() + again
        if self.again_at is not None:
            yield "query runs again", f"{self.again_at - self.killed_at:.1f} s after the kill"

    def _kill(self) -> None:
        self.killed_at = time.monotonic()
        self._stream.kill_and_start_again()
        self._on_event(f"Spark's driver killed with SIGKILL, {self._where()}")

    def _where(self) -> str:
        return "between micro-batches" if self.batch is None else f"in micro-batch {self.batch}"
