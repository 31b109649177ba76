"""Unexpected exceptions: logged with their trace, they end only the piece of work that raised them.

Code that catches such an exception leaves nothing half done: the work is tried again after a pause,
counted as failed, or given to another broker; other partitions, brokers and topics go on. An
exception that reaches the event loop is logged too, but a caller that waits for the answer to that
call waits for ever. A KafkaError that is expected is caught where it is expected.
"""

import enum
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from storage_engine.net.client_log import ClientLog

log = ClientLog(__name__)

is_fatal = False
"""True where a fault of this project must be found, not survived: in its tests and simulation."""

Args = ParamSpec("Args")
ResultT = TypeVar("ResultT")


class CallFailed(enum.Enum):
    """The result of `guarded` when the call failed."""

    FAILED = "failed"


FAILED: Final = CallFailed.FAILED


def report(what: str, error: Exception) -> None:
    """Log what has failed, with the trace."""
    log.error(what, "%s: unexpected %s", what, type(error).__name__, exc_info=error)
    if is_fatal:
        raise error


def guarded(
    what: str, call: Callable[Args, ResultT], *args: Args.args, **named: Args.kwargs
) -> ResultT | CallFailed:
    """Calls and returns the result, or reports the exception as `what` and returns FAILED. It is
    for calls in a row, and where a request would otherwise stay unanswered for ever: answers to
    requests, steps of coordinators, requests that wait on a partition.
    """
    try:
        return call(*args, **named)
    except Exception as error:  # noqa: BLE001 - reported; the caller goes on with the others
        report(what, error)
        return FAILED
