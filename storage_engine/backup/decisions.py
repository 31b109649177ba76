"""The ends of transactions, as the logs of the transaction coordinators decide them, in order.

A decision is one record: that of a transactional id which begins to end, or a ledger with the ends
of a micro-batch's members. Its markers follow. A transactional id begins nothing new before all
markers of its last end are written, and a member never does; so a member that is aborted by itself
needs no attention. Source: KIP-98, docs/sink-protocol.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    LedgerRecord,
    Origin,
    StateKey,
    StateRecord,
    TransactionRecord,
)
from storage_engine.protocol.records.record_batch import BytesLike
from storage_engine.protocol.state.state_batches import read_records
from storage_engine.protocol.state.transaction_records import FIELDS, decode_record

Position = tuple[int, int]
"""A partition of `__transaction_state`, and an offset there."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of one transaction of a producer."""

    at: Position
    partitions: frozenset[TopicPartition]


Content = dict[StateKey, StateRecord | UnreadableRecord]


@dataclass(slots=True)
class Decisions:
    """The logs as far as they were read: `take` is called with each piece, in order."""

    by_producer: dict[int, list[Decision]] = field(default_factory=dict)
    """The decisions that were read, each producer's in order. Early ones are missing, since the
    logs are compacted."""
    content: Content = field(default_factory=dict)
    """The newest record of each key."""

    def take(self, partition: int, batches: BytesLike) -> None:
        for offset, key, record in read_records(batches, FIELDS, decode_record, []):
            for producer_id, partitions in _begun(self.content.get(key), record):
                decision = Decision((partition, offset), partitions)
                self.by_producer.setdefault(producer_id, []).append(decision)
            if record is None:
                self.content.pop(key, None)
            else:
                self.content[key] = record

    def since(self, producer_id: int, ends: Mapping[int, int]) -> list[Decision]:
        """The decisions of a producer at or above the ends, by partition of the state log."""
        return [
            each
            for each in self.by_producer.get(producer_id, ())
            if each.at[1] >= ends.get(each.at[0], 0)
        ]

    def pending(self) -> dict[StateKey, StateRecord | UnreadableRecord]:
        """The records that say that markers may be missing."""
        return {key: each for key, each in self.content.items() if _is_pending(each)}

    def origins(self) -> dict[TopicPartition, int]:
        """The offset behind the last row of each source partition that a sink has copied, by the
        text of the topic's id."""
        found: dict[TopicPartition, int] = {}
        for record in self.content.values():
            if isinstance(record, LedgerRecord):
                for source, origin in record.origins.items():
                    found[source] = max(found.get(source, 0), _behind(origin))
        return found


def _behind(origin: Origin) -> int:
    return origin.offset + 1


def ending_producers(
    pending: Mapping[StateKey, StateRecord | UnreadableRecord],
) -> frozenset[int]:
    """The producers whose markers may be missing."""
    found: set[int] = set()
    for record in pending.values():
        match record:
            case TransactionRecord():
                found.add(record.producer_id)
            case LedgerRecord():
                found.update(end.producer_id for end in record.ends)
    return frozenset(found)


def is_over(
    before: StateRecord | UnreadableRecord, now: StateRecord | UnreadableRecord | None
) -> bool:
    """Whether all markers of what was pending are written, as a later record of the key shows."""
    if now is None:
        return True
    if isinstance(before, LedgerRecord) and isinstance(now, LedgerRecord):
        left = {end.producer_id for end in now.ends}
        return left.isdisjoint(end.producer_id for end in before.ends)
    return now is not before and now != before


def _is_pending(record: StateRecord | UnreadableRecord) -> bool:
    match record:
        case TransactionRecord():
            return record.state.is_ending
        case LedgerRecord():
            return bool(record.ends)
        case _:
            return False


def _begun(
    before: StateRecord | UnreadableRecord | None,
    now: StateRecord | UnreadableRecord | None,
) -> list[tuple[int, frozenset[TopicPartition]]]:
    """The producers whose end this record decides, with the partitions that get markers."""
    match now:
        case TransactionRecord() if now.state.is_ending:
            return [(now.producer_id, now.partitions)]
        case LedgerRecord():
            known = (
                {end.producer_id for end in before.ends}
                if isinstance(before, LedgerRecord)
                else set()
            )
            return [
                (end.producer_id, end.partitions)
                for end in now.ends
                if end.producer_id not in known
            ]
    return []
