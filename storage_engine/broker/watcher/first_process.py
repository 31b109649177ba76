"""Keeps a container alive until the session of a broker that has died in it is closed.

The first process of a container (1, in a namespace of processes) takes all others with it when it
ends: a broker that was that process would take its watcher along. So the first process starts the
broker as a child, passes signals on, reaps what others leave, and ends as the broker ended, once
the watcher is done.
"""

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

FIRST = 1
WATCHER_S = 10.0
"""How long the watcher is waited for after the end of the broker."""
_POLL_S = 0.02
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
_KILLED = 128
"""A shell's exit status for a process that a signal has ended, less the signal's number."""


def run_behind_first_process(run: Callable[[], int]) -> int:
    """Run a broker and return its exit status. There must be no threads yet."""
    if os.getpid() != FIRST:
        return run()
    waiting: list[int] = []
    broker = 0

    def pass_on(signum: int, _: FrameType | None) -> None:
        if broker:
            os.kill(broker, signum)
        else:
            waiting.append(signum)

    for each in _PASSED_ON:
        signal.signal(each, pass_on)
    child = os.fork()
    if child == 0:
        for each in _PASSED_ON:
            signal.signal(each, signal.SIG_DFL)
        # As without a first process of its own: Python's way of telling Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    broker = child
    for signum in waiting:
        os.kill(broker, signum)
    return _reap(broker)


def _reap(broker: int) -> int:
    pid = status = 0
    while pid != broker:
        pid, status = os.wait()
    # Its number may become another process's.
    for each in _PASSED_ON:
        signal.signal(each, signal.SIG_IGN)
    give_up_s = time.monotonic() + WATCHER_S
    try:
        while time.monotonic() < give_up_s:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(_POLL_S)
    except ChildProcessError:
        pass  # the watcher has ended
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _KILLED - code
