"""The processes of this machine, watched without polling: `core.ports.Processes` over pidfds.

A pidfd is one process, whoever gets its number later, and becomes readable when the last of its
threads is gone: by then the kernel has closed its files and connections. What a number means
depends on namespaces and on what /proc shows, so a process says who it is only where /proc is that
of its own namespace.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from storage_engine.core.ports import ProcessIdentity

log = logging.getLogger(__name__)

MAX_OPEN = 256
"""The most processes that are watched, a descriptor each: more brokers than a machine has."""

_PROC = Path("/proc")
_START_FIELD = 22
_BEFORE_COMM_ENDS = 2
"""The fields up to the command's name, which may hold spaces and brackets."""


class DescriptorLoop(Protocol):
    """The methods of an event loop that watch descriptors; asyncio's loops have more."""

    def add_reader(self, descriptor: int, callback: Callable[[], None], /) -> None: ...

    def remove_reader(self, descriptor: int, /) -> bool: ...

    def is_closed(self) -> bool: ...


class LocalProcesses:
    """The machine's processes, watched from one event loop."""

    def __init__(self, loop: DescriptorLoop) -> None:
        self._loop = loop
        self._own = _own_identity()
        self._open = 0

    @property
    def own(self) -> ProcessIdentity | None:
        return self._own

    def open(self, pid: int) -> "PidDescriptor | None":
        if self._open >= MAX_OPEN:
            log.info("process %d not watched reason=%d are watched already", pid, MAX_OPEN)
            return None
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError) as error:
            # Gone, forbidden, no descriptor left, or a kernel or C library without this call.
            log.info("process %d not watched reason=%s", pid, error)
            return None
        # After the descriptor: the process with the number now is the one that was opened, or was
        # started later than any process that was reported before.
        start_ticks = _start_ticks(_PROC / str(pid))
        if start_ticks is None:
            os.close(descriptor)
            log.info("process %d not watched reason=/proc does not show it", pid)
            return None
        self._open += 1
        return PidDescriptor(self._loop, descriptor, start_ticks, self._closed)

    def _closed(self) -> None:
        self._open -= 1


class PidDescriptor:
    """An open process; `close` may be called again."""

    def __init__(
        self,
        loop: DescriptorLoop,
        descriptor: int,
        start_ticks: int,
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._start_ticks = start_ticks
        self._on_closed = on_closed

    @property
    def start_ticks(self) -> int:
        return self._start_ticks

    def when_ended(self, callback: Callable[[], None]) -> None:
        def ended() -> None:
            self.close()
            callback()

        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, ended)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._on_closed()


def _own_identity() -> ProcessIdentity | None:
    own = _PROC / "self"
    try:
        if own.readlink().name != str(os.getpid()):
            # /proc is that of another namespace: numbers mean others there.
            return None
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        start_ticks = _start_ticks(own)
        if start_ticks is None or not boot_id:
            return None
        return ProcessIdentity(
            boot_id=boot_id,
            pid_namespace=(own / "ns/pid").stat().st_ino,
            time_namespace=_inode(own / "ns/time"),
            pid=os.getpid(),
            start_ticks=start_ticks,
        )
    except OSError as error:
        log.info("this process has no identity reason=%s", error)
        return None


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _start_ticks(process: Path) -> int | None:
    try:
        stat = (process / "stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[_START_FIELD - _BEFORE_COMM_ENDS - 1])
    except (OSError, ValueError, IndexError):
        return None
