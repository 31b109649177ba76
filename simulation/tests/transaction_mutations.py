"""Deliberate bugs in transactions and batch commits: what the simulation must find with them.

The rules of `mutations` hold here. Where two guards stand behind one rule the mutation takes both.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from simulation.run import run_seed
from simulation.tests.mutations import Apply, mutated, set_attribute
from simulation.tests.sink_mutations import SINK_MUTATIONS
from storage_engine.core.errors import ErrorCode
from storage_engine.core.retained import producer_state
from storage_engine.core.retained.producer_table import PartitionTransactions
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_events import EndTransaction, VerifyPartitions
from storage_engine.core.transactions.transaction_state import NO_BATCH, LedgerKey
from storage_engine.core.transactions.transactional_ids import TransactionalIds
from storage_engine.core.transactions.verification_guard import VerificationGuards

TRANSACTION_MUTATIONS: dict[str, Apply] = {**SINK_MUTATIONS}


def mutation(apply: Apply) -> Apply:
    TRANSACTION_MUTATIONS[apply.__name__] = apply
    return apply


def transaction_failure_of(name: str, seed: int, seconds: int) -> str | None:
    """As `failure_of`, with transactions."""
    with mutated(TRANSACTION_MUTATIONS[name]):
        return run_seed(seed, seconds=seconds, transactions=True).rule


@mutation
def batches_acknowledged_before_they_are_replicated(stack: ExitStack) -> None:
    commit = MicroBatchCommits.commit

    def answer_at_once(self: Any, event: Any) -> None:
        with ExitStack() as inner:
            set_attribute(
                inner, type(self._log), "answer", lambda log, answer, after: log.emit(answer)
            )
            commit(self, event)

    set_attribute(stack, MicroBatchCommits, "commit", answer_at_once)


@mutation
def commits_acknowledged_before_they_are_replicated(stack: ExitStack) -> None:
    answer_end = TransactionalIds._answer_end

    def answer_at_once(self: Any, event: Any, record: Any, *, after: int) -> None:
        answer_end(self, event, record, after=0)

    set_attribute(stack, TransactionalIds, "_answer_end", answer_at_once)


@mutation
def markers_not_sent_again_by_the_next_coordinator(stack: ExitStack) -> None:
    def forget(self: Any, transactional_id: str, record: Any, at: Any) -> None:
        with ExitStack() as inner:
            set_attribute(inner, TransactionalIds, "_end", lambda *_: None)
            restore(self, transactional_id, record, at)

    restore = TransactionalIds.restore
    set_attribute(stack, TransactionalIds, "restore", forget)


@mutation
def ends_of_a_batch_not_sent_again_by_the_next_coordinator(stack: ExitStack) -> None:
    restore = MicroBatchCommits.restore

    def forget(self: Any, *content: Any) -> None:
        with ExitStack() as inner:
            set_attribute(inner, MicroBatchCommits, "_send_ends", lambda *_: None)
            restore(self, *content)

    set_attribute(stack, MicroBatchCommits, "restore", forget)


@mutation
def zombies_go_on_writing(stack: ExitStack) -> None:
    """A producer writes under an epoch that has been replaced. Three guards are gone: the word of
    the coordinator, the guard of the partition, and the comparison with the newest epoch in the
    log."""
    used_by = TransactionalIds._used_by

    def use_any(self: Any, event: Any) -> Any:
        found = used_by(self, event)
        if found is ErrorCode.PRODUCER_FENCED and isinstance(event, VerifyPartitions):
            return self._entries[event.transactional_id]
        return found

    def is_open(self: Any, producer_id: int, epoch: int) -> bool:
        return producer_id in self._open

    set_attribute(stack, TransactionalIds, "_used_by", use_any)
    set_attribute(stack, VerificationGuards, "is_open", is_open)
    set_attribute(stack, producer_state, "_check_epoch_change", lambda *_: None)


@mutation
def zombies_go_on_committing(stack: ExitStack) -> None:
    """EndTxn is taken under any epoch."""
    end = TransactionalIds.end

    def end_any(self: Any, event: EndTransaction) -> None:
        entry = self._entries.get(event.transactional_id)
        if entry is not None and not event.bumps_epoch:
            event = replace(event, producer_epoch=entry.record.producer_epoch)
        end(self, event)

    set_attribute(stack, TransactionalIds, "end", end_any)


@mutation
def open_transactions_ignored_by_the_last_stable_offset(stack: ExitStack) -> None:
    def as_high(self: Any, high_watermark: int) -> int:
        return high_watermark

    set_attribute(stack, PartitionTransactions, "last_stable_offset", as_high)


@mutation
def unreplicated_markers_ignored_by_the_last_stable_offset(stack: ExitStack) -> None:
    """A transaction counts as decided while another leader may not have its marker."""

    def open_only(self: Any, high_watermark: int) -> int:
        return min([high_watermark, *self._ongoing.values()])

    set_attribute(stack, PartitionTransactions, "last_stable_offset", open_only)


@mutation
def replays_not_recognised(stack: ExitStack) -> None:
    """CommitBatch and JoinBatch do not look whether the batch is committed."""
    join = MicroBatchCommits.join

    def join_any(self: Any, event: Any) -> None:
        ledger = self._ledgers.of(LedgerKey(event.sink, event.query))
        record = ledger.record
        ledger.record = replace(record, last=NO_BATCH)
        join(self, event)
        ledger.record = record

    set_attribute(stack, MicroBatchCommits, "join", join_any)
    set_attribute(stack, MicroBatchCommits, "_is_committed", lambda self, event, ledger: False)


@mutation
def members_that_are_lost_not_missed(stack: ExitStack) -> None:
    """CommitBatch commits those that are open still: a part of the batch."""
    write = MicroBatchCommits._write_commit

    def write_some(self: Any, event: Any, key: Any, ledger: Any) -> None:
        open_ones = frozenset(each for each in event.members if self._open_member(*each))
        write(self, replace(event, members=open_ones), key, ledger)

    set_attribute(stack, MicroBatchCommits, "_a_member_is_lost", lambda self, event: False)
    # It looks at every member that is named.
    set_attribute(stack, MicroBatchCommits, "_origins_moved", lambda self, event: False)
    set_attribute(stack, MicroBatchCommits, "_write_commit", write_some)


@mutation
def guards_outlive_markers(stack: ExitStack) -> None:
    """A batch that was delayed on the way lands behind the marker of its transaction."""
    set_attribute(stack, VerificationGuards, "note_marker", lambda self, producer_id: None)
