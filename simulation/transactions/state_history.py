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
from simulation.checks.copies import BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from storage_engine.log.partition_log import PartitionLog

READ_BYTES = 1 << 20
CODECS = {
    TRANSACTION_STATE_TOPIC: "storage_engine.protocol.state.transaction_batches",
    GROUP_OFFSETS_TOPIC: "storage_engine.protocol.state.group_batches",
}


class StateHistory:
    """The history of one run."""

    def __init__(
        self, cluster: SimulatedCluster, checker: Checker, partitions: Sequence[TopicPartition]
    ) -> None:
        self._cluster = cluster
        self._checker = checker
        self._partitions = partitions
        self._unread: dict[TopicPartition, list[bytes]] = {tp: [] for tp in partitions}
        """By partition the batches that are not in `_content` yet."""
        self._content = {tp: self._codec(tp).new_content() for tp in partitions}
        self._clean: dict[tuple[int, TopicPartition], int] = {}
        """By broker and partition the offset up to which the replica was compacted at the last
        comparison."""
        self.passes = 0
        """The number of compaction passes that have visibly changed a replica."""

    def note(self, tp: TopicPartition, note: BatchNote, broker: int) -> bytes:
        """Record a batch that is committed now, and return its bytes from the broker that leads."""
        partition = self._cluster[broker].replicas.get(tp)
        assert partition is not None, "it leads"
        piece = partition.log.reads.read(
            note.base_offset, max_bytes=READ_BYTES, max_offset=note.end_offset
        )
        assert piece is not None, "it has what it commits"
        batch = bytes(piece.view())
        self._unread[tp].append(batch)
        return batch

    def content(self, tp: TopicPartition) -> Any:
        """Return the content of all that was committed."""
        unread = self._unread[tp]
        if unread:
            self._codec(tp).replay(b"".join(unread), self._content[tp])
            unread.clear()
        return self._content[tp]

    def check_compacted(self) -> None:
        """Compare the replicas that have been compacted further since they were compared."""
        with self._cluster.seen_whole():
            self._check_compacted()

    def _check_compacted(self) -> None:
        for broker in self._cluster.brokers:
            if not broker.serving:
                continue
            for tp in self._partitions:
                record = self._checker.record(tp)
                partition = broker.replicas.get(tp)
                if partition is None or record.unclean:
                    continue
                clean = partition.log.cleaning.first_dirty_offset
                is_news = clean != self._clean.get((broker.id, tp), 0)
                if is_news and record.copy(broker.id).holds(record.committed):
                    self._compare(broker.id, tp, partition.log)
                    self._clean[broker.id, tp] = clean
                    self.passes += 1

    def _compare(self, broker: int, tp: TopicPartition, log: PartitionLog) -> None:
        codec = self._codec(tp)
        end = self._checker.record(tp).committed.end_offset
        found = codec.new_content()
        offset = 0
        while (
            offset < end
            and (piece := log.reads.read(offset, max_bytes=READ_BYTES, max_offset=end)) is not None
        ):
            codec.replay(bytes(piece.view()), found)
            offset = piece.end_offset
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
