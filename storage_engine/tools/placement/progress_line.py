"""Tells how far a long command is: one line that is written over on a terminal, else lines."""

import sys
import time
from typing import TextIO

from storage_engine.core.printable import printable

_INTERVAL_S = 10.0
"""Between two lines where they stay."""


class ProgressLine:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._told_s = float("-inf")
        self._last = ""

    def tell(self, text: str) -> None:
        """Show the text; where lines stay, only when it is new and the last one some time ago."""
        if text == self._last:
            return
        if self._is_terminal:
            self._write(f"\r\x1b[K{printable(text)}")
        elif time.monotonic() - self._told_s < _INTERVAL_S:
            return
        else:
            self._write(f"{printable(text)}\n")
        self._last, self._told_s = text, time.monotonic()

    def keep(self, text: str) -> None:
        """Show a line that stays."""
        begin = "\r\x1b[K" if self._is_terminal else ""
        self._write(f"{begin}{printable(text)}\n")
        self._last = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
