"""A new coordinator of transactions reads its state in pieces: clients choose how much there is."""

from collections.abc import Mapping

import pytest

from storage_engine.core.coordinator_log import PIECE, Moment
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberKey,
    MemberRecord,
    StateKey,
    StateRecord,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator

MANY = 5 * PIECE


def producers() -> Mapping[StateKey, StateRecord]:
    return {
        TransactionalIdKey(f"p{number}"): TransactionRecord(
            producer_id=number,
            producer_epoch=0,
            timeout_ms=1000,
            state=TransactionState.ONGOING,
            last_update_ms=0,
        )
        for number in range(MANY)
    }


def ledgers() -> Mapping[StateKey, StateRecord]:
    return {LedgerKey("s", f"q{number}"): LedgerRecord(last=number) for number in range(MANY)}


def members() -> Mapping[StateKey, StateRecord]:
    return {
        MemberKey(number): MemberRecord(
            sink="s", query="q", batch=1, epoch=0, timeout_ms=1000, origin_clock=0
        )
        for number in range(MANY)
    }


@pytest.mark.parametrize("content", [producers(), ledgers(), members()])
def test_each_step_restores_some_entries(content):
    coordinator = TransactionCoordinator()

    def restored() -> int:
        batches = coordinator.batches
        lists = (coordinator.producers, batches.ledgers(), batches.members())
        return sum(sum(1 for _ in each) for each in lists)

    known, most = 0, 0
    for _ in coordinator.restore(content, Moment(0, 0)):
        found = restored()
        known, most = found, max(most, found - known)
    assert known == restored() >= MANY
    # With the one ledger of all members.
    assert most <= PIECE + 1
