"""The folder `<topic>-<partition>` of one log, with the settings of its segments.

Source: R-LOG1.
"""

from dataclasses import dataclass
from pathlib import Path

from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.log_segment import LogSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolder:
    """Replaced as a whole when the settings change or the folder is renamed."""

    disk: Disk
    pool: OpenFiles
    path: Path
    config: LogConfig

    def segment(self, base_offset: int, *, created_ms: int, size: int = 0) -> LogSegment:
        """Return a segment whose files exist, with `size` bytes of batches."""
        return LogSegment(
            self.disk,
            self.pool,
            self.path,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            index_max_bytes=self.config.segment_index_bytes,
            created_ms=created_ms,
            size=size,
        )

    def new_segment(self, base_offset: int, *, created_ms: int) -> LogSegment:
        """Return an empty segment with a new `.log` file; leftovers of the same names are
        removed."""
        segment = self.segment(base_offset, created_ms=created_ms)
        for path in segment.paths():
            self.disk.remove(path)
        segment.file.create()
        return segment
