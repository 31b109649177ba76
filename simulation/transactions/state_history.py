"""Everything that was ever committed in the coordinators' logs, as it was before compaction; and
the check that compacted replicas still have the same meaning.

A batch is copied in the event in which its leader commits it, when no pass can have touched it yet.
A compacted log has to be replayed to the same state as all that was written, or the next
coordinator begins with another. Source: R-LOG10, R-SPARK2.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from simulation.checks.checkers import Checker
from simulation.checks.compacted import CompactedReplicas
from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.log.partition_log import PartitionLog

CODECS = {
    TRANSACTION_STATE_TOPIC: "storage_engine.protocol.state.transaction_batches",
    GROUP_OFFSETS_TOPIC: "storage_engine.protocol.state.group_batches",
}


class StateHistory(CompactedReplicas):
    """The history of one run."""

    def __init__(
        self, cluster: SimulatedCluster, checker: Checker, partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(cluster, checker, partitions)
        self._unread: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
        """By partition the batches that are not in `_content` yet."""
        self._content = {tp: self._codec(tp).new_content() for tp in partitions}

    def note(self, tp: TopicPartition, note: BatchNote, broker: int) -> bytes:
        """Record a batch that is committed now, and return its bytes from the broker that leads."""
        batch = self.committed_batch(tp, note, broker)
        self._unread[tp].append(batch)
        return batch

    def content(self, tp: TopicPartition) -> Any:
        """Return the content of all that was committed."""
        unread = self._unread[tp]
        if unread:
            self._codec(tp).replay(b"".join(unread), self._content[tp])
            unread.clear()
        return self._content[tp]

    def compare(self, broker: int, tp: TopicPartition, log: PartitionLog) -> None:
        codec = self._codec(tp)
        end = self.checker.record(tp).committed.end_offset
        found = codec.new_content()
        for piece in self.pieces(log, 0, end):
            codec.replay(piece, found)
        wanted = self.content(tp)
        if _state_of(found) != _state_of(wanted):
            raise InvariantViolation(
                "a compacted log says what was written",
                f"{tp} on broker {broker}, clean up to {log.cleaning.first_dirty_offset}, says"
                f" up to {end}: {_difference(_state_of(found), _state_of(wanted))}",
            )

    @staticmethod
    def _codec(tp: TopicPartition) -> Any:
        return importlib.import_module(CODECS[tp.topic])


def _state_of(content: Any) -> dict[Any, Any]:
    """Return the state with which a coordinator would begin, without the places of offsets: records
    that are gone have none."""
    if isinstance(content, dict):
        return content
    said: dict[Any, Any] = {**content.groups}
    said |= {key: placed.record for key, placed in content.offsets.items()}
    for producer_id, pending in content.pending.items():
        said |= {(producer_id, key): placed.record for key, placed in pending.items()}
    return said


def _difference(found: dict[Any, Any], wanted: dict[Any, Any]) -> str:
    keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    return "; ".join(
        f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in keys[:3]
    ) + ("" if len(keys) <= 3 else f"; and {len(keys) - 3} more")
