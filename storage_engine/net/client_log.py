"""Lines of the log that clients can cause: some of each kind are written, the others are counted.

    first lines of a kind in a while   written, up to EACH_MAX of one source and ALL_MAX of all
    more of them                       counted; one line says how many there were, and of what kind

So nobody fills a disk with lines, or hides what others do among them. The kind of a line is its
text without what is filled in; the source is the client's address, or what else tells one from
another. Source: R-NET3.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from storage_engine.core.ids import TopicPartition

PERIOD_S = 10.0
EACH_MAX, ALL_MAX = 10, 100
"""The most lines of a kind in a period: of one source, and of all."""

CallLater = Callable[[float, Callable[[], None]], object]
"""(seconds, callback): an event loop's `call_later`."""

Told = str | int | float | UUID | Path | TopicPartition | Exception | None
"""An argument of a line; its text is logged unchanged."""


class _Kind:
    __slots__ = ("begun_s", "by_source", "left_out", "level", "written")

    def __init__(self) -> None:
        self.begun_s = 0.0
        self.level = logging.INFO
        self.written = 0
        self.by_source: Counter[str] = Counter()
        self.left_out = 0


class _Clock:
    """The clock that all logs of a process share."""

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = time.monotonic
        self.call_later: CallLater | None = None
        """Schedules the report of left-out lines at a period's end; None: the next line does it."""


_clock = _Clock()


def tell_in_time(call_later: CallLater) -> None:
    """Report left-out lines when their period ends, also when no other line follows."""
    _clock.call_later = call_later


class ClientLog:
    """A logger for lines that clients can cause."""

    _all: ClassVar[list["ClientLog"]] = []

    def __init__(self, name: str, *, each: int = EACH_MAX, most: int = ALL_MAX) -> None:
        """`each`, `most`: lines of a kind in a period, of one source and of all."""
        self._each, self._most = each, most
        self._log = logging.getLogger(name)
        self._kinds: dict[str, _Kind] = {}
        self._all.append(self)

    def debug(self, source: str, message: str, *args: Told) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._tell(logging.DEBUG, source, message, args)

    def info(self, source: str, message: str, *args: Told) -> None:
        self._tell(logging.INFO, source, message, args)

    def warning(self, source: str, message: str, *args: Told) -> None:
        self._tell(logging.WARNING, source, message, args)

    def error(
        self, source: str, message: str, *args: Told, exc_info: Exception | None = None
    ) -> None:
        self._tell(logging.ERROR, source, message, args, exc_info)

    def is_enabled_for(self, level: int) -> bool:
        return self._log.isEnabledFor(level)

    def _tell(
        self,
        level: int,
        source: str,
        message: str,
        args: tuple[Told, ...],
        exc_info: Exception | None = None,
    ) -> None:
        kind = self._kinds.get(message)
        if kind is None:
            kind = self._kinds[message] = _Kind()
        now_s = _clock.now_s()
        if now_s - kind.begun_s >= PERIOD_S:
            self._end(message, kind)
            kind.begun_s, kind.level = now_s, level
        if kind.written < self._most and kind.by_source[source] < self._each:
            kind.written += 1
            kind.by_source[source] += 1
            self._log.log(level, message, *args, exc_info=exc_info)
            return
        if not kind.left_out and _clock.call_later is not None:
            _clock.call_later(PERIOD_S, lambda: self._end(message, kind))
        kind.left_out += 1

    def _end(self, message: str, kind: _Kind) -> None:
        left_out, kind.left_out = kind.left_out, 0
        kind.written = 0
        kind.by_source.clear()
        if left_out:
            self._log.log(
                kind.level, "lines left out count=%d in=%d s like=%r", left_out, PERIOD_S, message
            )


def forget_all() -> None:
    """Reset all counts, so that the lines of one test are not counted in another."""
    for log in ClientLog._all:
        log._kinds.clear()
