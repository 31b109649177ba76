"""The comparison of compacted replicas with all that was ever committed in their partitions.

A batch is copied in the event in which its leader commits it, when no pass can have touched it yet.
"""

from collections.abc import Iterator, Sequence

from simulation.checks.copies import READ_BYTES, BatchNote
from simulation.checks.ledger import InvariantViolation
from simulation.shared import Run
from storage_engine.core.ids import TopicPartition
from storage_engine.log.partition_log import PartitionLog

CHECK_MS = 500
"""How often compacted replicas are compared."""


class CompactedReplicas:
    """The compacted partitions of one workload."""

    def __init__(self, run: Run, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = run.cluster
        self._checker = run.checker
        self._partitions = partitions
        self._clean: dict[tuple[int, TopicPartition], int] = {}
        """By broker and partition the offset up to which the replica was compacted at the last
        comparison."""
        self.passes = 0
        """The number of compaction passes that have visibly changed a replica."""

    def start(self) -> None:
        """Compare again and again."""

        def compare() -> None:
            self.check_compacted()
            self.start()

        self._cluster.loop.call_later(CHECK_MS, compare)

    def batch(self, tp: TopicPartition, note: BatchNote, broker: int) -> bytes:
        """Return the bytes of a batch that is committed now, from the broker that leads."""
        partition = self._cluster[broker].replicas.get(tp)
        assert partition is not None, "it leads"
        piece = partition.log.reads.read(
            note.base_offset, max_bytes=READ_BYTES, max_offset=note.end_offset
        )
        assert piece is not None, "it has what it commits"
        return bytes(piece.view())

    def check_compacted(self) -> None:
        """Compare the replicas that have been compacted further since they were compared."""
        with self._cluster.seen_whole():
            for broker in self._cluster.brokers:
                for tp in self._partitions if broker.serving else ():
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
        end = self._checker.record(tp).committed.end_offset
        lost = self._lost(tp, _pieces(log, end))
        if lost is not None:
            raise InvariantViolation(
                "a compacted log says what was written",
                f"{tp} on broker {broker}, clean up to {log.cleaning.first_dirty_offset}, says up"
                f" to {end}: {lost}",
            )

    def _lost(self, tp: TopicPartition, pieces: Iterator[bytes]) -> str | None:
        """Return how these batches' state differs from that of all committed ones; None: not."""
        raise NotImplementedError


def _pieces(log: PartitionLog, end: int) -> Iterator[bytes]:
    offset = 0
    while (
        offset < end
        and (piece := log.reads.read(offset, max_bytes=READ_BYTES, max_offset=end)) is not None
    ):
        yield bytes(piece.view())
        offset = piece.end_offset
