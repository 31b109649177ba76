"""Keeps a table quick to open: files of a good size, a late checkpoint, no old versions, no files
that nothing names.

Of several instances any may do it, or all: each step is a commit of its own, or can be repeated.
"""

import json
import logging
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from deltalake.exceptions import DeltaError

from headrace_lake.delta.compaction import CompactionResult, compact
from headrace_lake.delta.data_files import TARGET_BYTES, order_of
from headrace_lake.delta.store import StoreError, first_line
from headrace_lake.delta.table import CHECKPOINT_INTERVAL, LakeTable

logger = logging.getLogger(__name__)

TAIL_INTERVAL = 2_880
"""In versions, a day at two a minute: then what is below the target is put together, too."""

SAFE_HOURS = 168
"""How old a file must be before a sweep looks at it: the time that Delta keeps files for readers
of older versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    target_bytes: int = TARGET_BYTES
    safe_hours: int = SAFE_HOURS


class TableUpkeep:
    """The upkeep of one table; `table` is one of its own, not that of a writer."""

    def __init__(self, table: LakeTable, settings: UpkeepSettings | None = None) -> None:
        self._table = table
        self._settings = settings or UpkeepSettings()
        self._tail_version = table.version

    def tidy(self) -> CompactionResult:
        """Put files together, and write a checkpoint, if it is time; call it after commits.

        StoreError: call it again later. TableStoppedError as for a writer.
        """
        self._table.reload()
        whole_tail = self._table.version - self._tail_version >= TAIL_INTERVAL
        done = compact(self._table, self._settings.target_bytes, whole_tail=whole_tail)
        if whole_tail:
            self._tail_version = self._table.version
        if self._table.version - last_checkpoint(self._table) >= CHECKPOINT_INTERVAL:
            self.checkpoint()
        return done

    def checkpoint(self) -> None:
        """Write what the loaded version is, and drop commits that are older than the table keeps
        them (`delta.logRetentionDuration`)."""
        try:
            self._table.handle.create_checkpoint()
            self._table.handle.cleanup_metadata()
        except (DeltaError, OSError, ValueError, RuntimeError) as error:
            raise StoreError(f"could not write a checkpoint: {first_line(error)}") from error

    def sweep(self) -> int:
        """Remove our files that no version names any more, or never did; return their number.

        Call it once a day: it lists the whole location, and each batch that is being written is
        written anew.
        """
        self._table.reload()
        unnamed = self._unnamed()
        if not unnamed:
            return 0
        commit_id = uuid.uuid4().hex
        if not self._table.mark_sweep(commit_id):
            # A later version may name some of them: the next sweep looks again.
            return 0
        for path in unnamed:
            self._table.store.delete(path)
        logger.info("swept table=%s files=%d", self._table.store.url, len(unnamed))
        return len(unnamed)

    def _unnamed(self) -> list[str]:
        try:
            found = self._table.handle.vacuum(
                retention_hours=self._settings.safe_hours,
                dry_run=True,
                enforce_retention_duration=False,
                full=True,
            )
        except (DeltaError, OSError, ValueError, RuntimeError) as error:
            raise StoreError(f"could not list a table's files: {first_line(error)}") from error
        candidates = {each for each in found if order_of(each) is not None}
        if not candidates:
            return []
        # What is listed there goes by the clock of the store alone; ours is asked, too.
        before = datetime.now(UTC) - timedelta(hours=self._settings.safe_hours)
        return [
            each.path
            for each in self._table.store.list()
            if each.path in candidates and each.last_modified <= before
        ]


def last_checkpoint(table: LakeTable) -> int:
    """Return the version of the last checkpoint; 0 when there is none."""
    content = table.store.read("_delta_log/_last_checkpoint")
    return 0 if content is None else int(json.loads(content)["version"])
