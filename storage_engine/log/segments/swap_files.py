"""The names of files that are to replace segments. Only a `.swap` file counts after a crash.

    <base>-<end>.cleaned            being written; worthless after a crash
    <base>-<end>.index.cleaned, .timeindex.cleaned, .txnindex.cleaned
    <base>-<end>.swap               complete and on the medium: it takes the place of all segments
                                    whose base offset lies in [base, end), as <base>.log

Steps, each on the medium before the next begins: the `.cleaned` files are written; the log among
them is renamed to `.swap`; the old segments are renamed away; the `.swap` file and its indexes get
their names. Whatever opens the folder after a crash removes `.cleaned` files, and brings what a
`.swap` file began to its end. Source: R-LOG8, R-LOG10.
"""

import re
from pathlib import Path
from typing import NamedTuple

from storage_engine.log.files.disk import Disk, sync_names
from storage_engine.log.segments.log_segment import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_in_name,
)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_SWAP_NAME = re.compile(rf"([0-9]{{20}})-([0-9]{{20}}){re.escape(SWAP_SUFFIX)}")


class SwapFiles(NamedTuple):
    """The files of a segment for the offsets [base_offset, end_offset)."""

    directory: Path
    base_offset: int
    end_offset: int

    @property
    def cleaned_log(self) -> Path:
        return self._path(CLEANED_SUFFIX)

    @property
    def cleaned_index(self) -> Path:
        return self._path(INDEX_SUFFIX + CLEANED_SUFFIX)

    @property
    def cleaned_time_index(self) -> Path:
        return self._path(TIME_INDEX_SUFFIX + CLEANED_SUFFIX)

    @property
    def cleaned_transaction_index(self) -> Path:
        return self._path(TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX)

    @property
    def swap(self) -> Path:
        return self._path(SWAP_SUFFIX)

    def cleaned(self) -> list[Path]:
        return [
            self.cleaned_log,
            self.cleaned_index,
            self.cleaned_time_index,
            self.cleaned_transaction_index,
        ]

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{self.base_offset:020d}-{self.end_offset:020d}{suffix}"


def finish_swaps(disk: Disk, directory: Path, names: list[str]) -> bool:
    """Completes every replacement that a crash interrupted; returns True when there was one."""
    found = False
    for name in sorted(names):
        match = _SWAP_NAME.fullmatch(name)
        if match is None:
            continue
        found = True
        base_offset, end_offset = int(match[1]), int(match[2])
        for other in names:
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                offset = offset_in_name(other, suffix)
                if offset is not None and base_offset <= offset < end_offset:
                    disk.remove(directory / other)
        sync_names(disk, directory)
        disk.rename(directory / name, directory / file_name(base_offset, LOG_SUFFIX))
    if found:
        sync_names(disk, directory)
    return found
