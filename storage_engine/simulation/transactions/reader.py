"""A reader of committed transactions: it leaves out aborted ones, as Kafka's clients do, by the
list that comes with the records and by the markers among them.

It must get no record above the last stable offset, and in the end all records below. Source:
KIP-98.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.simulation.checks.checkers import Checker
from storage_engine.simulation.checks.ledger import InvariantViolation
from storage_engine.simulation.clients.workload import FETCH_VERSION, WorkloadClient
from storage_engine.simulation.transactions.ledger import TransactionLedger
from storage_engine.simulation.world.cluster import SimulatedCluster
from storage_engine.simulation.world.requests import fetch_request

BEGINS_ANEW = 0.03
PAUSE_MS = 300


class CommittedReader(WorkloadClient):
    """Reads partitions in turn, each from its start again, or from anywhere, once in a while."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        checker: Checker,
        choose: random.Random,
        ledger: TransactionLedger,
        partitions: Sequence[TopicPartition],
    ) -> None:
        super().__init__(cluster, checker, choose, "committed reader")
        self._ledger = ledger
        self._partitions = partitions
        self.positions = dict.fromkeys(partitions, 0)
        self.stays = False
        """True when it stays at its position from now on."""

    def run(self) -> None:
        tp = self.choose.choice(self._partitions)
        leader = self.leader(tp)
        if leader is None:
            self._later()
            return
        if not self.stays and self.choose.random() < BEGINS_ANEW:
            self.positions[tp] = 0
        offset = self.positions[tp]
        epoch = self.epoch_of(leader, tp)
        wait_ms = self.choose.choice((0, 0, 500))
        self.request(
            leader,
            FETCH,
            FETCH_VERSION,
            fetch_request(tp.topic, tp.partition, offset, wait_ms=wait_ms, committed_only=True),
            lambda reply: self._on_reply(tp, leader, epoch, offset, reply),
        )

    def _on_reply(
        self, tp: TopicPartition, leader: int, epoch: int, offset: int, reply: Any
    ) -> None:
        self._later()
        if isinstance(reply, TransportError) or reply.error_code:
            return
        (answer,) = reply.partitions
        if answer.error_code:
            if ErrorCode.of(answer.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range(tp, leader, epoch, offset)
            return
        if self.checker.record(tp).unclean:
            return
        if self.epoch_of(leader, tp) == epoch:
            stable = answer.last_stable_offset
            self._ledger.is_stable(self.name, tp, epoch, stable, answer.high_watermark)
        self._take(tp, answer)

    def _out_of_range(self, tp: TopicPartition, leader: int, epoch: int, offset: int) -> None:
        record = self.checker.record(tp)
        if record.unclean:
            self.positions[tp] = 0
        elif record.state is not None and record.state.leader_epoch == epoch:
            raise InvariantViolation(
                "what a consumer has read stays",
                f"{tp}: broker {leader} says that offset {offset} is out of range",
            )

    def _take(self, tp: TopicPartition, answer: Any) -> None:
        record = self.checker.record(tp)
        coming = deque(sorted(answer.aborted_transactions or (), key=lambda each: each[1]))
        aborting: set[int] = set()
        data = memoryview(answer.records or b"")
        for position, header in iter_headers(data):
            offset = header.base_offset
            if header.next_offset > answer.last_stable_offset:
                raise InvariantViolation(
                    "read_committed sees only what is below the last stable offset",
                    f"{tp} at {offset}, last stable offset {answer.last_stable_offset}",
                )
            note = record.committed_at(offset)
            if note is None or note.crc != header.crc:
                raise InvariantViolation(
                    "no offset is served with two contents, nor before it is committed",
                    f"{tp} at {offset}, committed is {note}",
                )
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

    def _later(self) -> None:
        delay_ms = int(self.choose.expovariate(1 / PAUSE_MS))
        self.cluster.loop.call_later(delay_ms, self.run)
