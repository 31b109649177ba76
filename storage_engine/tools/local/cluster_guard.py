"""A cluster that does not outlive the process it was started for, however that process ends.

Brokers and ZooKeeper run in sessions of their own, so that a Ctrl-C does not end them while the
program still needs them. For a cluster that serves only one block of code (a benchmark, a test) a
guard waits on a pipe that only that process holds. When the kernel closes the pipe before the
process has written to it, after SIGKILL too, the guard becomes `headrace down`.

The guard imports nothing until then, so that it takes a few MiB of memory and starts in some
milliseconds.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_GUARD = """
import os, sys
if not os.read(0, 1):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
_DOWN = ("-m", "storage_engine.tools.cli", "down", "--dir")
_IN_ORDER = b"."


@contextlib.contextmanager
def taken_down_with_us(directory: Path) -> Iterator[None]:
    """Stops all processes of the cluster in `directory` when this process dies within the block. A
    block that ends normally, or by an exception, has to stop the cluster itself."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, *_DOWN, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as guard:
        assert guard.stdin is not None
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):  # somebody killed the guard
                guard.stdin.write(_IN_ORDER)
                guard.stdin.flush()
