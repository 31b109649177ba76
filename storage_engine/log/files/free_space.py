"""The free space of one log dir. Appends stop while a reserve is left, so that a full disk refuses
them before a write, and not in the middle of one.

The reserve is for writes that must not stop: indexes, checkpoints, epochs, and appends of other
logs that are under way. An append only subtracts from an allowance; the operating system is asked
when that is used up. Source: R-LOG8.
"""

import logging
from pathlib import Path

from storage_engine.core.errors import LogFullError
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.storage_errors import storage_error

ALLOWANCE_BYTES = 8 << 20
"""The bytes that may be appended before the operating system is asked again; small beside the usual
reserve, since others fill the disk too.
"""

logger = logging.getLogger(__name__)


class FreeSpace:
    """The free space of one log dir, shared by its logs."""

    __slots__ = ("_allowance", "_disk", "_path", "is_full", "reserve_bytes")

    def __init__(self, disk: Disk, path: Path, *, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` 0: the space is never checked, and no append is refused."""
        self._disk = disk
        self._path = path
        self.reserve_bytes = reserve_bytes
        self._allowance = 0
        self.is_full = False
        """True when the last append was refused."""

    def take(self, size: int) -> None:
        """Subtracts an append of `size` bytes before it is made; LogFullError when that would reach
        into the reserve."""
        left = self._allowance - size
        if left < 0 and self.reserve_bytes:
            left = self._ask(size)
        self._allowance = left

    def refresh(self) -> None:
        """Has the next append count what others wrote meanwhile."""
        self._allowance = 0

    def _ask(self, size: int) -> int:
        try:
            free = self._disk.free_bytes(self._path)
        except OSError as error:
            raise storage_error("ask for the free space of", self._path, error) from error
        room = free - self.reserve_bytes
        if room < size:
            if not self.is_full:
                self.is_full = True
                logger.error(
                    "log dir full, appends are refused log_dir=%s free_bytes=%d"
                    " reserve_bytes=%d: make room, or lower log.dir.min.free.bytes",
                    self._path,
                    free,
                    self.reserve_bytes,
                )
            raise LogFullError(
                f"no room for {size} bytes in the log dir {self._path}: {free} bytes are"
                f" free, log.dir.min.free.bytes={self.reserve_bytes} of them are kept"
            )
        if self.is_full:
            self.is_full = False
            logger.info("log dir has room again log_dir=%s free_bytes=%d", self._path, free)
        return min(room, ALLOWANCE_BYTES) - size
