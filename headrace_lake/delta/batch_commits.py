"""Commits a batch once, whatever the answers of the store."""

from collections.abc import Sequence

from headrace_lake.delta.data_files import DataFile
from headrace_lake.delta.store import StoreError
from headrace_lake.delta.table import LakeTable
from headrace_lake.protocol.attempts import AttemptDecision, TableBatch, decide

MOST_CONFLICTS = 50
"""The most of one call: others commit now and then, so that more of them in a row are a fault."""


def commit_batch(table: LakeTable, batch: TableBatch, files: Sequence[DataFile]) -> AttemptDecision:
    """Return what became of the batch: COMMITTED, FENCED or WRITE_ANEW.

    StoreError leaves it open: call again with the same batch, after a pause, until there is an
    answer. TableStoppedError when others changed the table; the batch may be in it, or not.
    """
    for _ in range(MOST_CONFLICTS):
        if table.is_stale:
            table.reload()
        decision = decide(batch, table.state(batch.ends))
        if decision is not AttemptDecision.COMMIT:
            return decision
        if table.commit(files, batch.ends, batch.commit_id):
            return AttemptDecision.COMMITTED
    raise StoreError(f"{MOST_CONFLICTS} commits of others came before one of ours: trying again")
