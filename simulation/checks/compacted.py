"""The comparison of compacted replicas with all that was ever committed in their partitions.

A batch is copied in the event in which its leader commits it, when no pass can have touched it yet.
"""

from collections.abc import Iterator, Sequence

from simulation.checks.checkers import Checker
from simulation.checks.copies import BatchNote
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.log.partition_log import PartitionLog

READ_BYTES = 1 << 20


class CompactedReplicas:
    """The replicas of some partitions."""

    def __init__(
        self, cluster: SimulatedCluster, checker: Checker, partitions: Sequence[TopicPartition]
    ) -> None:
        self.cluster = cluster
        self.checker = checker
        self._partitions = partitions
        self._clean: dict[tuple[int, TopicPartition], int] = {}
        """By broker and partition the offset up to which the replica was compacted at the last
        comparison."""
        self.passes = 0
        """The number of passes that have visibly changed a replica."""

    def committed_batch(self, tp: TopicPartition, note: BatchNote, broker: int) -> bytes:
        """Return a batch that is committed now, from the broker that leads."""
        partition = self.cluster[broker].replicas.get(tp)
        assert partition is not None, "it leads"
        return next(self.pieces(partition.log, note.base_offset, note.end_offset))

    def pieces(self, log: PartitionLog, offset: int, end: int) -> Iterator[bytes]:
        """Yield the batches of a log from one offset to the other."""
        while (
            offset < end
            and (piece := log.reads.read(offset, max_bytes=READ_BYTES, max_offset=end)) is not None
        ):
            yield bytes(piece.view())
            offset = piece.end_offset

    def check_compacted(self) -> None:
        """Compare the replicas that have been compacted further since they were compared."""
        with self.cluster.seen_whole():
            for broker in self.cluster.brokers:
                for tp in self._partitions if broker.serving else ():
                    record = self.checker.record(tp)
                    partition = broker.replicas.get(tp)
                    if partition is None or record.unclean:
                        continue
                    clean = partition.log.cleaning.first_dirty_offset
                    is_news = clean != self._clean.get((broker.id, tp), 0)
                    if is_news and record.copy(broker.id).holds(record.committed):
                        self.compare(broker.id, tp, partition.log)
                        self._clean[broker.id, tp] = clean
                        self.passes += 1

    def compare(self, broker: int, tp: TopicPartition, log: PartitionLog) -> None:
        """Raise InvariantViolation where the replica does not say what was committed."""
        raise NotImplementedError
