"""Calls something at a chosen place of other code, as a signal handler would be called.

CPython runs handlers at the beginning of a function, after a call, and at the end of a loop's turn.
These places of a piece of work are counted, and it is run once for each.
"""

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from storage_engine import client

_FOLDER = client.__path__[0]

_PLACES = {
    number
    for name, number in dis.opmap.items()
    if name.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
}


class Interruption:
    """A handler that comes at one place of what a `with` block does in our clients."""

    def __init__(self, place: int, handler: Callable[[], object]) -> None:
        """Places count from 0."""
        self._left = place
        self._handler = handler
        self.came = False
        """Whether there was that place."""

    def __enter__(self) -> "Interruption":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code.co_code
        before = -1

        def local(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "opcode" and not self.came:
                if before in _PLACES:
                    if not self._left:
                        self.came = True
                        self._handler()
                    self._left -= 1
                before = code[frame.f_lasti]
            return local

        return local
