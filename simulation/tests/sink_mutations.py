"""Deliberate bugs in what transactions carry beside records: offsets of groups, members that are
kept alive or given up, origins, and the compaction of the coordinators' logs.

The rules of `mutations` hold here.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from simulation.tests.mutations import Apply, set_attribute
from storage_engine.core.groups.records import CommittedOffsets
from storage_engine.core.transactions import micro_batch_commits
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_events import TransactionAnswer
from storage_engine.core.transactions.transaction_state import LedgerKey, LedgerRecord
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.log.cleaning.compactor import Compactor
from storage_engine.protocol.state.state_batches import iter_raw
from storage_engine.protocol.state.transaction_records import decode_key, decode_record

SINK_MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    SINK_MUTATIONS[apply.__name__] = apply
    return apply


@mutation
def offsets_not_checked_again_after_they_have_waited(stack: ExitStack) -> None:
    """Offsets that have waited for their coordinator to load are appended though a marker has ended
    their transaction meanwhile."""
    set_attribute(stack, VerificationGuards, "is_valid", lambda self, verification: True)


@mutation
def offsets_of_aborted_transactions_count(stack: ExitStack) -> None:
    end = CommittedOffsets.end_transaction

    def commit(self: Any, producer_id: int, *, commits: bool) -> bool:
        return end(self, producer_id, commits=True)

    set_attribute(stack, CommittedOffsets, "end_transaction", commit)


@mutation
def heartbeats_that_do_not_restart_the_clock(stack: ExitStack) -> None:
    heartbeat = MicroBatchCommits.heartbeat

    def only_answer(self: Any, event: Any) -> None:
        before = dict(self.touched)
        heartbeat(self, event)
        self.touched.update(before)

    set_attribute(stack, MicroBatchCommits, "heartbeat", only_answer)


@mutation
def members_given_up_with_all_others_of_their_query(stack: ExitStack) -> None:
    """Those of another driver, which are accepted, too."""
    abort = MicroBatchCommits.abort

    def abort_all(self: Any, event: Any) -> None:
        key = LedgerKey(event.sink, event.query)
        every = frozenset(
            (producer_id, record.epoch)
            for producer_id, record in self.members()
            if record.ledger == key
        )
        abort(self, replace(event, members=every))

    set_attribute(stack, MicroBatchCommits, "abort", abort_all)


@mutation
def members_given_up_stay_open(stack: ExitStack) -> None:
    def only_answer(self: Any, event: Any) -> None:
        self._log.emit(TransactionAnswer(request=event.request))

    set_attribute(stack, MicroBatchCommits, "abort", only_answer)


@mutation
def origins_not_moved_with_the_commit(stack: ExitStack) -> None:
    set_attribute(stack, micro_batch_commits, "advanced", lambda present, _offsets, _clock: present)


@mutation
def origins_that_have_moved_not_noticed(stack: ExitStack) -> None:
    """A member goes by what the sink had when it joined."""
    set_attribute(stack, MicroBatchCommits, "_origins_moved", lambda self, event: False)


@mutation
def compaction_forgets_unfinished_ends(stack: ExitStack) -> None:
    filtered = Compactor._filtered

    def forget(self: Any, batches: list[Any]) -> list[Any]:
        return [
            None if data is not None and _has_ends(bytes(batch.data)) else data
            for batch, data in zip(batches, filtered(self, batches), strict=True)
        ]

    set_attribute(stack, Compactor, "_filtered", forget)


def _has_ends(batch: bytes) -> bool:
    """Whether a batch holds a ledger whose members' markers are not all written."""
    for _, raw_key, raw in iter_raw(batch, "compacted log"):
        key = decode_key(raw_key)
        if isinstance(key, LedgerKey) and raw is not None:
            record = decode_record(key, raw)
            if isinstance(record, LedgerRecord) and record.ends:
                return True
    return False
