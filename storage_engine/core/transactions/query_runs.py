"""The runs of a streaming query. Only the newest known run may write, and an unknown run is newer
than all others, so that a restart is never refused.

Two runs of one query live at once where a checkpoint was copied, or an old driver does not know
that it was replaced. The only order of runs is that in which their requests come. A run that
RUNS_KEPT others have replaced since counts as new: it replaces the newest, whose query ends and can
be started again; the numbers of micro-batches still decide which rows count. Source: R-SPARK2.
"""

from dataclasses import replace
from uuid import UUID

from storage_engine.core.transactions.transaction_state import LedgerRecord

RUNS_KEPT = 16
"""The number of runs that a query's record keeps, of 16 bytes each."""


def is_replaced(record: LedgerRecord, run: UUID) -> bool:
    """Return True when a newer run was seen."""
    return run in record.runs[:-1]


def with_run(record: LedgerRecord, run: UUID) -> LedgerRecord:
    """Return the record with that run as the newest; the same object when it is already."""
    if record.runs[-1:] == (run,):
        return record
    return replace(record, runs=(*record.runs, run)[-RUNS_KEPT:])
