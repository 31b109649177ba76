"""A reader of committed transactions: it leaves out aborted ones, as Kafka's clients do, by the
list that comes with the records and by the markers among them.

It must get no record above the last stable offset, and in the end all records below. Source:
KIP-98.
"""

from collections import deque
from collections.abc import Sequence

from simulation.checks.ledger import InvariantViolation
from simulation.shared import Run
from simulation.transactions.ledger import TransactionLedger
from simulation.workload import WorkloadReader, records_of
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import iter_headers

PAUSE_MS = 300


class CommittedReader(WorkloadReader):
    """Reads what is below the last stable offset."""

    committed_only = True

    def __init__(
        self, run: Run, ledger: TransactionLedger, partitions: Sequence[TopicPartition]
    ) -> None:
        choose = run.chooser("reader")
        super().__init__(run, choose, "committed reader", partitions, pause_ms=PAUSE_MS)
        self._ledger = ledger

    def take(
        self, tp: TopicPartition, leader: int, epoch: int, answer: FetchPartitionResponse
    ) -> None:
        if self.checker.record(tp).unclean:
            return
        if self.epoch_of(leader, tp) == epoch:
            stable = answer.last_stable_offset
            self._ledger.is_stable(self.name, tp, epoch, stable, answer.high_watermark)
        self._check_served(tp, answer)

    def _check_served(self, tp: TopicPartition, answer: FetchPartitionResponse) -> None:
        record = self.checker.record(tp)
        coming = deque(sorted(answer.aborted_transactions or (), key=lambda each: each[1]))
        aborting: set[int] = set()
        data = records_of(answer)
        for position, header in iter_headers(data):
            offset = header.base_offset
            if header.next_offset > answer.last_stable_offset:
                raise InvariantViolation(
                    "read_committed sees only what is below the last stable offset",
                    f"{tp} at {offset}, last stable offset {answer.last_stable_offset}",
                )
            record.check_served(header)
            while coming and coming[0][1] <= header.last_offset:
                aborting.add(coming.popleft()[0])
            if header.is_control:
                marker = read_marker(data[position : position + header.size_in_bytes])
                if marker is not None and not marker.commits:
                    aborting.discard(header.producer_id)
            else:
                skipped = header.is_transactional and header.producer_id in aborting
                self._ledger.check_read(tp, offset, delivered=not skipped)
            self.positions[tp] = header.next_offset
