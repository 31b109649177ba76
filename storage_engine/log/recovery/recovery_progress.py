"""Logs the progress of a log dir's recovery. The total is estimated before; the checked bytes are
counted.

Source: R-LOG8.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from storage_engine.core.ports import Clock
from storage_engine.log.files.disk import Disk
from storage_engine.log.segments.log_segment import LOG_SUFFIX, offset_in_name

INTERVAL_MS = 2000
"""A longer recovery logs its progress at this interval."""

MARK = "recovering log_dir="
"""The beginning of each line; programs that start brokers search their logs for it."""

_MIB = 1 << 20

logger = logging.getLogger(__name__)


class RecoveryProgress:
    """The recovery of one log dir."""

    def __init__(self, path: Path, clock: Clock, *, partitions: int, total_bytes: int) -> None:
        self._path = path
        self._clock = clock
        self._partitions = partitions
        self._total_bytes = total_bytes
        self._done_partitions = 0
        self._done_bytes = 0
        self._start_ms = self._logged_ms = clock.monotonic_ms()

    def checked(self, size: int) -> None:
        """Counts `size` more bytes as checked."""
        self._done_bytes += size
        self._log()

    def opened(self) -> None:
        """Counts one more log as open."""
        self._done_partitions += 1
        self._log()

    def _log(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= INTERVAL_MS:
            self._logged_ms = now_ms
            logger.info("%s%s", MARK, self.text(now_ms))

    def text(self, now_ms: int) -> str:
        """Return the log dir and its progress."""
        total = max(self._total_bytes, self._done_bytes)
        seconds = max(1, now_ms - self._start_ms) / 1000
        rate = self._done_bytes / seconds
        if rate:
            left = f"about {(total - self._done_bytes) / rate:.0f} s left"
        else:
            of_partitions = self._partitions - self._done_partitions
            left = f"about {seconds * of_partitions / max(1, self._done_partitions):.0f} s left"
        return (
            f"{self._path}: {self._done_partitions} of {self._partitions} partitions,"
            f" {self._done_bytes // _MIB} of {total // _MIB} MiB, {rate / _MIB:.0f} MiB/s, {left}"
        )


def begin_progress(
    disk: Disk, clock: Clock, path: Path, recovery_points: Mapping[Path, int], *, clean: bool
) -> RecoveryProgress:
    """Return the progress for the log dir `path`, whose logs' folders have these recovery points;
    `clean`: they will only be opened.
    """
    try:
        total = 0 if clean else bytes_to_check(disk, recovery_points.items())
    except OSError:
        # Opening the logs will raise that error again.
        total = 0
    return RecoveryProgress(path, clock, partitions=len(recovery_points), total_bytes=total)


def bytes_to_check(disk: Disk, folders: Iterable[tuple[Path, int]]) -> int:
    """Return the bytes that recovery has to check in the logs of these folders with their recovery
    points."""
    total = 0
    for path, recovery_point in folders:
        bases = sorted(
            offset
            for name in disk.list_names(path)
            if (offset := offset_in_name(name, LOG_SUFFIX)) is not None
        )
        for number, base in enumerate(bases):
            is_last = number == len(bases) - 1
            if is_last or bases[number + 1] > recovery_point:
                total += disk.file_size(path / f"{base:020d}{LOG_SUFFIX}")
    return total
