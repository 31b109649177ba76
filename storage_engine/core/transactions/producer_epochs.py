"""The epochs of producers with a transactional id. No producer is given the last epoch, so that
there is always one more to fence with.

Source: KIP-98, KIP-360, KIP-890.
"""

from dataclasses import replace

from storage_engine.core.transactions.transaction_events import EndTransaction, InitProducer
from storage_engine.core.transactions.transaction_state import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionRecord,
    TransactionState,
)

LAST_CLIENT_EPOCH = MAX_PRODUCER_EPOCH - 1
"""The highest epoch that a producer is given; the one above it fences that producer."""

BUMPING_CLIENT = 2
"""The `client_version` of a client with an epoch for each transaction."""


def may_go_on(event: InitProducer, record: TransactionRecord) -> bool:
    """Return True when a producer that names its id and epoch is the present one (KIP-360)."""
    return event.producer_id in (NO_PRODUCER_ID, record.producer_id, record.next_producer_id) or (
        event.producer_id == record.previous_producer_id
        and event.producer_epoch >= LAST_CLIENT_EPOCH
    )


def is_early(producer: tuple[int, int], record: TransactionRecord) -> bool:
    """Return True when a producer (id, epoch) already uses the id that it gets when its last
    transaction is complete."""
    return record.next_producer_id != NO_PRODUCER_ID and producer == (record.next_producer_id, 0)


def is_repeat(event: EndTransaction, record: TransactionRecord) -> bool:
    """Return True when a bumping client's request has the epoch that has ended last."""
    if not (record.state.is_ending or record.state.is_complete):
        return False
    if event.producer_id == record.producer_id:
        return event.producer_epoch == record.producer_epoch - 1
    return (
        event.producer_id == record.previous_producer_id
        and event.producer_epoch == LAST_CLIENT_EPOCH
        and record.producer_epoch == 0
    )


def bumped(record: TransactionRecord, fresh_producer_id: int) -> TransactionRecord:
    """Return the record under the next epoch; after a producer id's last epoch, under a new id."""
    used_up = record.producer_epoch >= LAST_CLIENT_EPOCH
    return replace(
        record,
        producer_epoch=record.producer_epoch + 1,
        next_producer_id=fresh_producer_id if used_up else NO_PRODUCER_ID,
        previous_producer_id=NO_PRODUCER_ID,
        client_version=BUMPING_CLIENT,
    )


def completed(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    done = replace(
        record,
        state=(
            TransactionState.COMPLETE_COMMIT
            if record.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        ),
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
    if record.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=record.next_producer_id,
        producer_epoch=0,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
