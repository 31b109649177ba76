"""The output of the demo on the terminal: dated events, one line of progress, tables.

The output is plain text. On a terminal the line of progress is rewritten in place; elsewhere, in a
log file say, a new one appears now and then.
"""

import shutil
import sys
import time
from collections.abc import Iterable
from typing import TextIO

_SECONDS_BETWEEN_LINES = 5.0
"""The time between lines of progress where they can't be rewritten in place."""


class Display:
    """Writes to `out`; times count from its creation."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._in_place = out.isatty()
        self._started_at = time.monotonic()
        self._shown_at = float("-inf")
        self._progress = ""

    def seconds(self, moment: float | None = None) -> float:
        """The seconds from the start to `moment` of the monotonic clock, or to now."""
        return (time.monotonic() if moment is None else moment) - self._started_at

    def event(self, text: str) -> None:
        """Prints an event with its time."""
        self._clear()
        print(f"{self.seconds():6.1f} s  {text}", file=self._out, flush=True)

    def progress(self, done: int, total: int, text: str) -> None:
        """Shows the progress; to be called often."""
        line = f"{self.seconds():6.1f} s  {_bar(done, total)} {text}"
        if self._in_place:
            # A line that wraps could not be rewritten.
            line = line[: shutil.get_terminal_size().columns - 1]
            padding = " " * max(0, len(self._progress) - len(line))
            self._out.write(f"\r{line}{padding}")
            self._out.flush()
            self._progress = line
        elif time.monotonic() - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = time.monotonic()
            print(line, file=self._out, flush=True)

    def table(self, title: str, rows: Iterable[tuple[str, str]]) -> None:
        """Prints names and values in two columns."""
        self._clear()
        rows = list(rows)
        width = max(len(name) for name, _ in rows)
        print(f"\n{title}", file=self._out)
        for name, value in rows:
            print(f"  {name:<{width}}  {value}", file=self._out)
        self._out.flush()

    def lines(self, lines: Iterable[str]) -> None:
        """Prints plain lines."""
        self._clear()
        for line in lines:
            print(line, file=self._out)
        self._out.flush()

    def _clear(self) -> None:
        if self._progress:
            self._out.write("\r" + " " * len(self._progress) + "\r")
            self._progress = ""


def _bar(done: int, total: int, width: int = 20) -> str:
    share = done / total if total else 1.0
    filled = int(share * width)
    return f"[{'#' * filled}{'.' * (width - filled)}] {share:4.0%}"
