"""The group coordinator's log as record batches, and the content of the whole log. Reading in
pieces, in order, is the same as reading at once, whether compaction has been there or not.

Batches of transactions wait for their markers. Keys of later versions are skipped. Source: KIP-98.
"""

from functools import partial

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    ConsumerMemberRecord,
    CurrentAssignmentRecord,
    PartitionMetadataKey,
    PatternKey,
    PatternRecord,
    TargetKey,
    TargetMemberRecord,
)
from storage_engine.core.groups.records import (
    GroupContent,
    GroupEntry,
    GroupKey,
    GroupRecord,
    OffsetKey,
    RecordKey,
)
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import BatchHeader, BytesLike, iter_headers
from storage_engine.protocol.state.group_records import (
    FIELDS,
    decode_record,
    encode_key,
    encode_record,
)
from storage_engine.protocol.state.state_batches import encode_records, read_records


def new_content() -> GroupContent:
    """Return the content of an empty log."""
    return GroupContent()


LONG_MEMBERS = 500
"""The members above which a group's record is encoded in the background, at 2 µs each."""
LONG_TOPICS = 3_000
"""The same for names of topics, at 0.3 µs each."""
LONG_PARTITIONS = 20_000
"""The same for partitions in assignments, at 0.05 µs each, and 1 µs for each topic."""
TOPIC_COSTS = 20
"""In the time of one partition."""


def is_long(entry: GroupEntry) -> bool:
    match entry[1]:
        case GroupRecord() as group:
            return len(group.members) > LONG_MEMBERS
        case ConsumerMemberRecord() | PatternRecord() as named:
            return len(named.topics) > LONG_TOPICS
        case TargetMemberRecord() as target:
            return _cost(target.assignment) > LONG_PARTITIONS
        case CurrentAssignmentRecord() as current:
            both = _cost(current.assigned) + _cost(current.pending_revocation)
            return both > LONG_PARTITIONS
        case _:
            return False


def _cost(assignment: Assignment) -> int:
    return sum(map(len, assignment.values())) + TOPIC_COSTS * len(assignment)


encode_entries = partial(encode_records, encode_key, encode_record)
"""Encode entries as batches, in order, each with the number of its entries: see `encode_parts`."""


def replay(batches: BytesLike, content: GroupContent) -> list[str]:
    """Apply whole batches of the log to `content`; return why records among them can't be
    decoded."""
    troubles: list[str] = []
    of_transactions = _OfTransactions(batches)
    for offset, key, record in read_records(batches, FIELDS, decode_record, troubles):
        of_transactions.end_before(offset, content)
        if isinstance(record, UnreadableRecord):
            troubles.append(
                f"the record of {key} at offset {offset} is lost, {_follows(key)}: {record.reason}"
            )
        content.put(key, record, of_transactions.producer_at(offset))
    of_transactions.end_before(None, content)
    return troubles


def _follows(key: RecordKey) -> str:
    """Return what follows from a record that can't be decoded, or what to do about it."""
    match key:
        case OffsetKey():
            return "commit another offset"
        case GroupKey() | ConsumerGroupKey():
            return "it begins anew"
        case PatternKey() | PartitionMetadataKey() | TargetKey():
            return "it is found anew"
        case _:
            return "the member joins anew"


class _OfTransactions:
    """The batches of transactions among others, read once in the order of offsets."""

    def __init__(self, batches: BytesLike) -> None:
        self._batches = memoryview(batches)
        self._left: list[tuple[int, BatchHeader]] = [
            (position, header)
            for position, header in iter_headers(batches)
            if header.is_transactional
        ]
        self._left.reverse()

    def end_before(self, offset: int | None, content: GroupContent) -> None:
        """Apply the markers below the offset; all that are left with None."""
        while self._left:
            position, header = self._left[-1]
            if offset is not None and header.last_offset >= offset:
                return
            self._left.pop()
            if header.is_control:
                marker = read_marker(self._batches[position : position + header.size_in_bytes])
                if marker is not None:
                    content.end_transaction(header.producer_id, commits=marker.commits)

    def producer_at(self, offset: int) -> int | None:
        """Return the producer whose transaction the record is part of."""
        if self._left and self._left[-1][1].base_offset <= offset:
            return self._left[-1][1].producer_id
        return None
