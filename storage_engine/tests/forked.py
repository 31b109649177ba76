"""Work in the child of a fork, as a program does that forks while it has a client."""

import os
import signal
from collections.abc import Callable

LIMIT_S = 60
RAISED = 99


def forked(work: Callable[[], bool]) -> bool:
    """Whether `work` is true in a forked child, and raises nothing there."""
    child = os.fork()
    if not child:
        status = RAISED
        try:
            signal.alarm(LIMIT_S)
            status = not work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
