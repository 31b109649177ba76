"""An exception that nobody foresaw: told with its trace, it ends the one thing that met it.

Rule: who catches such an exception leaves nothing under way. What it ends is done again after a
pause, counted as failed, or given away; the other partitions, brokers and topics are served on.
(An exception that goes up to the event loop is told, too, but whoever waits for the answer of the
call that it ended waits for ever.) A KafkaError that is expected is caught where it is expected.
"""

import enum
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

log = logging.getLogger(__name__)

is_fatal = False
"""Set where a fault of this project must be found, not survived: by its tests and simulation."""

Args = ParamSpec("Args")
ResultT = TypeVar("ResultT")


class CallFailed(enum.Enum):
    """What `guarded` returns instead of a result."""

    FAILED = "failed"


FAILED: Final = CallFailed.FAILED


def report(what: str, error: Exception) -> None:
    """Log what has failed, with the trace."""
    log.error("%s: unexpected %s", what, type(error).__name__, exc_info=error)
    if is_fatal:
        raise error


def guarded(
    what: str, call: Callable[Args, ResultT], *args: Args.args, **named: Args.kwargs
) -> ResultT | CallFailed:
    """What the call returns; FAILED when it has failed, which is reported as `what`.

    For what is called in a row, or where something would stay under way for ever: answers to
    requests, steps of coordinators, those who wait on a partition.
    """
    try:
        return call(*args, **named)
    except Exception as error:  # noqa: BLE001 - reported; the caller goes on with the others
        report(what, error)
        return FAILED
