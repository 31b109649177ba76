"""Finds records of the state log that can each be decoded but contradict one another. They are
treated as records that can't be decoded, so that requests about them are refused and all others are
served; a coordinator that used them would fail, and so would the next one.

A producer id ends in one record: that of its transactional id, or the ledger that carries its end.
With two such records, nobody could say to which of them a marker belongs.
"""

from collections.abc import Generator, Mapping

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.rounds import pieces
from storage_engine.core.transactions.transaction_state import (
    LedgerRecord,
    StateKey,
    StateRecord,
    TransactionRecord,
)


def ending_ids(record: StateRecord | UnreadableRecord) -> list[int]:
    """Return the producer ids whose markers are still to be written, as the record says."""
    match record:
        case TransactionRecord() if record.state.is_ending:
            return [record.producer_id]
        case LedgerRecord():
            return [end.producer_id for end in record.ends]
        case _:
            return []


def contradictions(
    content: Mapping[StateKey, StateRecord | UnreadableRecord],
) -> Generator[None, None, dict[StateKey, UnreadableRecord]]:
    """Return the records that contradict others, each replaced by an UnreadableRecord with the
    reason; looked for in pieces."""
    places: dict[int, list[StateKey]] = {}
    for piece in pieces(content):
        for key in piece:
            for producer_id in ending_ids(content[key]):
                places.setdefault(producer_id, []).append(key)
        yield
    return {
        key: UnreadableRecord(f"producer id {producer_id} ends in several places")
        for producer_id, keys in places.items()
        if len(keys) > 1
        for key in keys
    }
