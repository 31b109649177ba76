"""A client that writes in a transaction: it enlists partitions with its coordinator, and sends
batches to their leaders until the answer is final.

Source: KIP-98, KIP-890, R-SPARK2.
"""

from collections.abc import Callable, Sequence

from simulation.transactions.asker import TRANSACTION_KEY, Asker, Way, World
from simulation.transactions.ledger import ObservedTransaction
from simulation.transactions.state_log import state_partition_of
from simulation.workload import BROKER_TIMEOUT_MS, MAX_RECORDS
from simulation.workload import check_acknowledged as check_written
from simulation.world.requests import make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.messages import add_partitions_to_txn
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT, read_header

MOST_BATCHES = 2
"""The most batches of a transaction in one partition."""

Then = Callable[[ErrorCode], None]

_Topic = add_partitions_to_txn.AddPartitionsToTxnTopic


def way_to(transactional_id: str) -> Way:
    """Return the way to the coordinator of a transactional id."""
    return Way(transactional_id, TRANSACTION_KEY, state_partition_of(transactional_id))


class Actor(Asker):
    """A client with a transactional id, a producer id and an epoch."""

    produce_version = 8
    """The version of a client that enlists partitions itself; from 12 on leaders do it."""

    def __init__(self, world: World, transactional_id: str, name: str) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        self.way = way_to(transactional_id)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def enlist(
        self, partitions: Sequence[TopicPartition], then: Then, *, has_echo: bool = True
    ) -> None:
        numbers: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, []).append(number)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[_Topic(name=t, partitions=some) for t, some in numbers.items()],
        )

        def codes(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> list[int]:
            return [
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]

        self.ask(
            self.way,
            add_partitions_to_txn.API,
            3,
            request,
            codes,
            lambda _, code: then(code),
            has_echo=has_echo,
        )

    def write(
        self, transaction: ObservedTransaction, partitions: Sequence[TopicPartition], then: Then
    ) -> None:
        """Write a batch or two to each partition; `then` gets the worst code, once all are
        answered."""
        left = len(partitions)
        worst = ErrorCode.NONE
        # These are the present values: it may be in its next transaction when it sends the last
        # batches.
        writes = _Writes(self, transaction)

        def settle(code: ErrorCode) -> None:
            nonlocal left, worst
            left -= 1
            worst = worst or code
            if not left:
                then(worst)

        for tp in partitions:
            self._write(writes, tp, self.choose.randint(1, MOST_BATCHES), settle)

    def _write(self, writes: "_Writes", tp: TopicPartition, count: int, then: Then) -> None:
        """Write `count` batches, one after another."""
        world, transaction = self.world, writes.transaction
        batch = writes.next_batch(tp)
        crc = read_header(batch).crc
        world.ledger.sends(transaction, tp, batch)
        token = f"{self.name}: Produce {world.number()}"
        world.waiting.add(token)

        def send() -> None:
            leader = self.leader(tp)
            if leader is None:
                world.later(send)
                return
            request = produce_request(
                tp.topic,
                tp.partition,
                memoryview(bytearray(batch)),
                acks=-1,
                timeout_ms=BROKER_TIMEOUT_MS,
                transactional_id=self.transactional_id,
            )
            self.request(leader, PRODUCE, self.produce_version, request, on_reply)
            self._echo(leader, PRODUCE, self.produce_version, request)

        def on_reply(answer: ProduceResponse | TransportError) -> None:
            if isinstance(answer, TransportError):
                self.is_doubtful = True
                world.later(send)
                return
            (row,) = answer.partitions
            code = ErrorCode.of(row.error_code)
            if code.retriable:
                world.later(send)
                return
            world.waiting.discard(token)
            if code is ErrorCode.NONE and not world.ledger.is_void(transaction):
                record = world.checker.record(tp)
                check_written(record, row.base_offset, crc, transaction.name)
            if code is ErrorCode.NONE and count > 1:
                self._write(writes, tp, count - 1, then)
            else:
                then(code)

        send()


class _Writes:
    """The batches of one transaction, with the producer's id and epoch at the time."""

    def __init__(self, actor: Actor, transaction: ObservedTransaction) -> None:
        self.transaction = transaction
        self._actor = actor
        self._producer = actor.producer_id, actor.epoch
        self._sequences = actor.sequences

    def next_batch(self, tp: TopicPartition) -> memoryview:
        actor = self._actor
        records = actor.choose.randint(1, MAX_RECORDS)
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + records
        return make_batch(
            records,
            payload=b"%s %d" % (self.transaction.name.encode(), actor.world.number()),
            producer=(*self._producer, sequence),
            attributes=TRANSACTIONAL_BIT,
        )
