"""A transaction coordinator that producers with transactional ids ask."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    VerifyPartitions,
)
from storage_engine.core.transactions.transaction_state import TransactionRecord
from storage_engine.tests.core.transactions.coordinator_bench import CoordinatorBench

TIMEOUT_MS = 60_000
TX = "tx"

Producer = tuple[int, int]


class ProducerBench(CoordinatorBench):
    """Requests of producers with transactional ids."""

    def init(self, known: Producer = (-1, -1), *, timeout_ms=TIMEOUT_MS, replicate=True):
        return self.ask(
            lambda request: InitProducer(
                request=request,
                transactional_id=TX,
                timeout_ms=timeout_ms,
                now_ms=self.now_ms,
                fresh_producer_id=self.fresh_producer_id(),
                producer_id=known[0],
                producer_epoch=known[1],
            ),
            replicate=replicate,
        )

    def add(self, producer: Producer, *partitions: TopicPartition, by_leader=False, replicate=True):
        return self.ask(
            lambda request: AddPartitions(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                partitions=frozenset(partitions),
                now_ms=self.now_ms,
                by_leader=by_leader,
            ),
            replicate=replicate,
        )

    def verify(self, producer: Producer, *partitions: TopicPartition) -> ErrorCode:
        answer = self.ask(
            lambda request: VerifyPartitions(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                partitions=frozenset(partitions),
            )
        )
        assert answer is not None
        return answer.error

    def end(self, producer: Producer, *, commits=True, bumps=False, replicate=True):
        return self.ask(
            lambda request: EndTransaction(
                request=request,
                transactional_id=TX,
                producer_id=producer[0],
                producer_epoch=producer[1],
                commits=commits,
                now_ms=self.now_ms,
                fresh_producer_id=self.fresh_producer_id(),
                bumps_epoch=bumps,
            ),
            replicate=replicate,
        )

    def started(self, known: Producer = (-1, -1)) -> Producer:
        """As a client does it: again, while the last transaction is being finished."""
        for _ in range(3):
            answer = self.init(known)
            assert answer is not None
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.settle()
        assert answer.error is ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    def record(self) -> TransactionRecord:
        record = self.coordinator.producers.get(TX)
        assert record is not None
        return record


def started() -> tuple[ProducerBench, Producer]:
    bench = ProducerBench()
    return bench, bench.started()
