"""Prepares the Python process of Spark that the connector runs in, so that each call costs less.

It changes only processes that Spark has started for its own calls, the workers of tasks and those
in which the driver makes writers and commits; never the user's program.
"""

import gc
import os
import socket
import stat
import sys
from pathlib import Path

_DAEMON = "pyspark.daemon"
_DESCRIPTORS = Path("/dev/fd")

_sends_at_once = False


def prepare_worker() -> None:
    """Must be called whenever Spark calls: when a task begins, or the driver wants a reader or
    writer."""
    global _sends_at_once
    if not _is_worker():
        return
    freeze_modules()
    if not _sends_at_once:
        _sends_at_once = True
        send_at_once()


def send_at_once() -> None:
    """Lets TCP send small pieces without waiting for the acknowledgement of those before.

    A worker answers the JVM in two pieces, the result and the end of the stream. The JVM answers
    neither, so the second one would wait for a delayed acknowledgement: 40 ms for each commit of
    the sink. Spark leaves its sockets as they are, and `spark.python.unix.domain.socket.enabled`,
    which avoids TCP, is off by default and unknown to Spark 4.0.
    """
    try:
        descriptors = [int(each.name) for each in _DESCRIPTORS.iterdir()]
    except OSError:
        return
    for descriptor in descriptors:
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as sock:
                if _is_to_this_machine(sock):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            # It was closed meanwhile, or listens and has no peer.
            continue


def _is_to_this_machine(sock: socket.socket) -> bool:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return False
    return str(sock.getpeername()[0]) in ("127.0.0.1", "::1")


def _is_worker() -> bool:
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        return True
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started is not None and started.name == _DAEMON


_frozen_modules: int | None = None
"""How many modules there were when they were frozen last. None before the first call."""


def freeze_modules() -> None:
    """Must be called in a worker when a call begins. The first call loads modules, so the second
    one freezes them."""
    global _frozen_modules
    if _frozen_modules is None:
        _frozen_modules = 0
    elif len(sys.modules) > _frozen_modules:
        gc.freeze()
        _frozen_modules = len(sys.modules)
