"""Ever so many transactional ids: they are restored and expire a piece at a time, and an id that is
used between the pieces stays."""

from typing import Any

from storage_engine.core.coordinator_log import PIECE, AppendRecord, Moment, Replicated, TickAgain
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import (
    AddPartitions,
    CheckTimeouts,
    InitProducer,
)
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


def tick(coordinator: TransactionCoordinator, at: Moment = LATE) -> tuple[int, bool]:
    """How many ids have expired, and whether there is more to do."""
    effects = coordinator.step(CheckTimeouts(at=at))
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


def test_a_transaction_that_began_within_a_round_has_all_of_its_time():
    """A round stands still while replicas are missing, perhaps for longer than the timeout."""
    coordinator, _ = restored()
    coordinator.step(CheckTimeouts(at=Moment(0, 0)))
    began_ms = 100_000
    effects = coordinator.step(
        AddPartitions(
            request=1,
            transactional_id=f"id{IDS - 1}",
            producer_id=IDS - 1,
            producer_epoch=0,
            partitions=frozenset([TopicPartition("t", 0)]),
            now_ms=began_ms,
        )
    )
    (number,) = (each.number for each in effects if isinstance(each, AppendRecord))
    coordinator.step(Replicated(number=number))

    def state_at(now_ms: int) -> TransactionState:
        while tick(coordinator, Moment(now_ms, now_ms))[1]:
            pass
        return dict(coordinator.producers)[f"id{IDS - 1}"].state

    assert state_at(began_ms + 10) is TransactionState.ONGOING
    assert state_at(began_ms + 999) is TransactionState.ONGOING
    assert state_at(began_ms + 1_000) is not TransactionState.ONGOING
