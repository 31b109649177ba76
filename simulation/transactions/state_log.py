"""The coordinators' logs, as far as they are committed: their decisions, which have to back each
acknowledgement, and the state that they say.

A log is read in order, once, as it was written. A compacted one has to be replayed to the same
state, or the next coordinator begins with another. Source: R-LOG10, R-SPARK2 (an answer that leaves
before its record is replicated is a batch that a failover loses).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from simulation.checks.checkers import Checker
from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.compaction import CompactedReplicas
from simulation.shared import Run
from storage_engine.core.groups.records import GroupContent
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    StateContent,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
    coordinated_name,
    state_partition,
)
from storage_engine.protocol.state import group_batches, transaction_batches
from storage_engine.protocol.state.state_batches import iter_raw
from storage_engine.protocol.state.transaction_records import FIELDS, decode_key, decode_record

CODECS: dict[str, Any] = {
    TRANSACTION_STATE_TOPIC: transaction_batches,
    GROUP_OFFSETS_TOPIC: group_batches,
}
PARTITIONS = 2
"""transaction.state.log.num.partitions."""


def state_partition_of(transactional_id: str) -> TopicPartition:
    """Return the partition with the state of a transactional id."""
    number = state_partition(coordinated_name(transactional_id), PARTITIONS)
    return TopicPartition(TRANSACTION_STATE_TOPIC, number)


class CommittedDecisions:
    """The decisions of one run."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._unread: list[bytes] = []
        self._commits: Counter[str] = Counter()
        """The number of transactions that a coordinator has decided to commit, by transactional
        id."""
        self._answered: Counter[str] = Counter()
        """The number of them that a producer was answered."""
        self._last: dict[LedgerKey, int] = {}

    def on_committed(self, batch: bytes) -> None:
        """Record a committed batch of the log."""
        self._unread.append(batch)

    def check_commit(self, transactional_id: str) -> None:
        """Check the first answer to a producer that one of its transactions is committed."""
        self._answered[transactional_id] += 1
        if self._checker.record(state_partition_of(transactional_id)).unclean:
            return
        self._read()
        decided = self._commits[transactional_id]
        if self._answered[transactional_id] > decided:
            raise InvariantViolation(
                "what a coordinator acknowledges is committed",
                f"{transactional_id} was told of {self._answered[transactional_id]} commits,"
                f" the log has {decided}",
            )

    def check_batch(self, sink: str, query: str, number: int) -> None:
        """Check an answer that a micro-batch is committed."""
        if self._checker.record(state_partition_of(sink)).unclean:
            return
        self._read()
        last = self._last.get(LedgerKey(sink, query), -1)
        if last < number:
            raise InvariantViolation(
                "what a coordinator acknowledges is committed",
                f"batch {number} of {query} is told to be committed, the log has {last}",
            )

    def _read(self) -> None:
        batches = b"".join(self._unread)
        self._unread.clear()
        for _, raw_key, raw in iter_raw(batches, FIELDS.log) if batches else ():
            key = decode_key(raw_key)
            if key is None or raw is None:
                continue
            record = decode_record(key, raw)
            if isinstance(key, TransactionalIdKey) and isinstance(record, TransactionRecord):
                if record.state is TransactionState.PREPARE_COMMIT:
                    self._commits[key.transactional_id] += 1
            elif isinstance(key, LedgerKey) and isinstance(record, LedgerRecord):
                self._last[key] = max(self._last.get(key, -1), record.last)


class StateHistory(CompactedReplicas):
    """The history of one run."""

    def __init__(self, run: Run, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(run, partitions)
        self._unread: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
        """By partition the batches that are not in `_content` yet."""
        self._content = {tp: CODECS[tp.topic].new_content() for tp in partitions}

    def note(self, tp: TopicPartition, note: BatchNote, broker: int) -> bytes:
        """Record a batch that is committed now, and return its bytes."""
        batch = self.batch(tp, note, broker)
        self._unread[tp].append(batch)
        return batch

    def _lost(self, tp: TopicPartition, pieces: Iterator[bytes]) -> str | None:
        codec, wanted = CODECS[tp.topic], self._content[tp]
        if self._unread[tp]:
            codec.replay(b"".join(self._unread[tp]), wanted)
            self._unread[tp].clear()
        found = codec.new_content()
        for piece in pieces:
            codec.replay(piece, found)
        if (said := _state_of(found)) == (written := _state_of(wanted)):
            return None
        keys = [key for key in {**said, **written} if said.get(key) != written.get(key)]
        more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
        return "; ".join(f"{k}: {said.get(k)} instead of {written.get(k)}" for k in keys[:3]) + more


def _state_of(content: StateContent | GroupContent) -> dict[Any, Any]:
    """Return the state with which a coordinator would begin, without the places of offsets: records
    that are gone have none."""
    if isinstance(content, dict):
        return content
    said: dict[Any, Any] = {**content.groups}
    said |= {key: placed.record for key, placed in content.offsets.items()}
    for group_id, group in content.consumer_groups.items():
        said |= dict(group.entries(group_id))
    for producer_id, pending in content.pending.items():
        said |= {(producer_id, key): placed.record for key, placed in pending.items()}
    return said
