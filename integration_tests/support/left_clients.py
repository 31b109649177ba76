"""Clients of librdkafka that nobody uses any more, and that are not freed yet.

A call that was refused keeps its client alive in a cycle: the error has the frames, the frames have
the client. In a process as large as that of the tests the next collection of all garbage may be
minutes away. Meanwhile each client has its threads, which look for brokers that were stopped.
"""

import gc
from pathlib import Path

_THREAD = "rdk:main"
"""Each client has one of that name."""


def running_clients() -> int:
    """How many clients of librdkafka this process has."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            count += (task / "comm").read_text().strip() == _THREAD
        except OSError:  # the thread has ended
            continue
    return count


def free_left_clients() -> None:
    if running_clients():
        gc.collect()
