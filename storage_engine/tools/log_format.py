"""The format of a broker's log lines. The beginning of every line was written by the broker itself.

A message may hold what clients sent, what stands in ZooKeeper or on a disk. It is escaped here, for
all messages of all modules, so that nobody who logs a name has to think of it. A trace keeps its
lines, each indented: the text of an exception can hold such a name too.
"""

import logging
from types import TracebackType

from storage_engine.core.printable import printable

_INDENT = "  "

_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class OneLineFormatter(logging.Formatter):
    """Each record is one line, and below it the lines of its trace if it has one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(trace: str) -> str:
    return "\n".join(_INDENT + printable(line) for line in trace.split("\n"))
