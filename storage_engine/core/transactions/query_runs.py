"""Which run of a streaming query writes. Its one rule: the newest that was seen, and a run that was
never seen is newer than all others, so that a restart is never refused.

Two runs of one query live at once where a checkpoint was copied, or an old driver does not know
that it was replaced. Runs have no order but that in which they come. A run that RUNS_KEPT others
have replaced since is taken for new: it replaces the newest, whose query ends and can be started
again; which rows count is decided by the numbers of micro-batches all the same. Source: R-SPARK2.
"""

from dataclasses import replace
from uuid import UUID

from storage_engine.core.transactions.transaction_state import LedgerRecord

RUNS_KEPT = 16
"""16 bytes each, in every record of the query."""


def is_replaced(record: LedgerRecord, run: UUID) -> bool:
    """Whether a newer run was seen."""
    return run in record.runs[:-1]


def with_run(record: LedgerRecord, run: UUID) -> LedgerRecord:
    """The record with that run as the newest; the very same one when it is."""
    if record.runs[-1:] == (run,):
        return record
    return replace(record, runs=(*record.runs, run)[-RUNS_KEPT:])
