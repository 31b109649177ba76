"""Ever so many transactional ids: they are restored and expire a piece at a time, and an id that is
used between the pieces stays."""

from typing import Any

from storage_engine.core.coordinator_log import AppendRecord, Moment, Replicated, TickAgain
from storage_engine.core.rounds import PIECE
from storage_engine.core.transactions.transaction_events import CheckTimeouts, InitProducer
from storage_engine.core.transactions.transaction_state import (
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.core.transactions.transactions import EXPIRATION_MS, TransactionCoordinator

IDS = 2 * PIECE + 10
LATE = Moment(EXPIRATION_MS + 1, EXPIRATION_MS + 1)


def restored() -> tuple[TransactionCoordinator, int]:
    """A coordinator of so many ids, and in how many pieces it was restored."""
    content: Any = {
        TransactionalIdKey(f"id{number}"): TransactionRecord(
            producer_id=number,
            producer_epoch=0,
            timeout_ms=1_000,
            state=TransactionState.EMPTY,
            last_update_ms=0,
            client_version=0,
        )
        for number in range(IDS)
    }
    coordinator, pieces = TransactionCoordinator(), 0
    for _ in coordinator.restore(content, Moment(0, 0)):
        pieces += 1
    coordinator.step(Replicated(number=0))
    return coordinator, pieces


def tick(coordinator: TransactionCoordinator) -> tuple[int, bool]:
    """How many ids have expired, and whether there is more to do."""
    effects = coordinator.step(CheckTimeouts(at=LATE))
    gone = sum(isinstance(each, AppendRecord) and each.entry[1] is None for each in effects)
    return gone, any(isinstance(each, TickAgain) for each in effects)


def test_ids_are_restored_and_expire_in_pieces():
    coordinator, pieces = restored()
    assert pieces == 2 * 3, "looked through for contradictions, and taken up"
    assert [tick(coordinator) for _ in range(3)] == [(PIECE, True), (PIECE, True), (10, False)]
    assert not list(coordinator.producers)


def test_an_id_that_is_used_while_others_expire_stays():
    coordinator, _ = restored()
    tick(coordinator)
    last = f"id{IDS - 1}"
    coordinator.step(
        InitProducer(
            request=1,
            transactional_id=last,
            fresh_producer_id=10**6,
            timeout_ms=1_000,
            now_ms=LATE.wall_ms,
        )
    )
    while tick(coordinator)[1]:
        pass
    assert [name for name, _ in coordinator.producers] == [last]
