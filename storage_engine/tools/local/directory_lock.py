"""Only one command at a time may change the directory of a cluster.

The lock is the kernel's, so that a killed command frees it.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage_engine.tools.errors import CommandError
from storage_engine.zookeeper.session_credentials import for_owner

LOCK_TIMEOUT_S = 60.0
"""A command waits for the lock as long as starting all brokers may take."""

LOCK_FILE = ".headrace.lock"
_POLL_S = 0.05


@contextmanager
def directory_lock(directory: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Holds the lock of the directory. Raises CommandError when another command holds it for
    `timeout_s`."""
    # Whoever could open the file could hold its lock.
    with open(directory / LOCK_FILE, "a", opener=for_owner) as file:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CommandError(
                        f"another headrace command is running in '{directory}'; "
                        "try again when it is done"
                    ) from None
                time.sleep(_POLL_S)
        yield
