"""Whether a batch may be committed now.

A commit is made on one loaded version of the table, and fails if there is a later one. So what was
decided from that version is still true when the commit is made: this fences writers that went on
after another took over, whatever clocks say. After each failure, and each error that leaves open
what happened, the table is loaded again before the next decision.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace_lake.protocol.progress import LakeProgress, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatch:
    """Rows in files that no commit names yet."""

    commit_id: str
    """The id of this batch alone, and the same in each attempt to commit it."""
    base_version: int
    """The version of the table that was loaded before the first file was begun."""
    starts: Mapping[int, LakeProgress | None]
    """The progress behind which the rows of each partition follow. Its partitions are those of
    `ends`."""
    ends: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A loaded version of the table, as far as it matters for a batch."""

    version: int
    progress: Progress
    swept_version: int = -1
    """The version of the last sweep; -1: there was none."""
    landed: frozenset[str] = frozenset()
    """Commit ids that were tried and are in the table."""


class AttemptDecision(enum.Enum):
    """The fate of a batch."""

    COMMIT = enum.auto()
    COMMITTED = enum.auto()
    """An earlier attempt succeeded, and its answer was lost."""
    FENCED = enum.auto()
    """Another writer has moved a partition: drop the batch, go on from the table's progress."""
    WRITE_ANEW = enum.auto()
    """A sweep may have removed files of the batch: write them again."""


def decide(batch: TableBatch, table: TableState) -> AttemptDecision:
    """Return what to do with the batch, if the commit is made on exactly this `table`."""
    if batch.commit_id in table.landed:
        return AttemptDecision.COMMITTED
    if any(table.progress.get(each) != start for each, start in batch.starts.items()):
        return AttemptDecision.FENCED
    if table.swept_version > batch.base_version:
        return AttemptDecision.WRITE_ANEW
    return AttemptDecision.COMMIT


def may_replace(
    paths: Collection[str], base_version: int, active: Collection[str], table: TableState
) -> bool:
    """Return whether a rewrite of the files at `paths`, begun at `base_version`, may be committed
    on this `table`, whose files are `active`."""
    return table.swept_version <= base_version and all(each in active for each in paths)
