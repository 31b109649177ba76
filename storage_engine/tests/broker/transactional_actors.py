"""Producers and whoever else writes in transactions in the random world: each asks one thing after
another, and what is retriable again, until it is over (KIP-98, KIP-890)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.record_batch import TRANSACTIONAL_BIT
from storage_engine.simulation.requests import make_batch

if TYPE_CHECKING:
    from storage_engine.tests.broker.test_transactions_at_random import World

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 8_000
IMPATIENT = 0.3
"""Of the transactions of those who can do so are aborted while their batches are under way."""

_Topic = add_partitions_to_txn.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Actor:
    """Asks one thing after another, and never waits: who is told goes on in a callback."""

    produce_version = 8

    def __init__(self, world: "World", transactional_id: str) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def ask(
        self,
        spec: Any,
        version: int,
        request: Any,
        codes: Callable[[Any], list[int]],
        then: Callable[[Any, ErrorCode], None],
    ) -> None:
        """`then` gets the answer with its worst code; what is retriable is asked again."""
        world = self.world

        def on_found(answer: Any) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                world.later(again)
            else:
                world.send(answer.node_id, spec, version, request, on_reply)

        def on_reply(answer: Any) -> None:
            if isinstance(answer, TransportError):
                world.later(again)
                return
            worst = [ErrorCode.of(code) for code in codes(answer) if code]
            final = [code for code in worst if not code.retriable]
            if final or not worst:
                then(answer, final[0] if final else ErrorCode.NONE)
            else:
                world.later(again)

        def again() -> None:
            wanted = find_coordinator.FindCoordinatorRequest(key=self.transactional_id, key_type=1)
            world.send(world.some_broker(), find_coordinator.API, 3, wanted, on_found)

        again()

    def add(self, partitions: list[TopicPartition], then: Callable[[ErrorCode], None]) -> None:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                _Topic(name=PARTITIONS[0].topic, partitions=[p for _, p in partitions])
            ],
        )

        def codes(answer: Any) -> list[int]:
            (topic,) = answer.results_by_topic_v3_and_below
            return [row.partition_error_code for row in topic.results_by_partition]

        self.ask(add_partitions_to_txn.API, 3, request, codes, lambda _, code: then(code))

    def write(
        self, partitions: list[TopicPartition], payload: bytes, then: Callable[[ErrorCode], None]
    ) -> None:
        """The same to all partitions; `then` hears the worst, once all are answered."""
        outcomes: list[ErrorCode] = []

        def settle(code: ErrorCode) -> None:
            outcomes.append(code)
            if len(outcomes) == len(partitions):
                then(next((each for each in outcomes if each), ErrorCode.NONE))

        for tp in partitions:
            self._write_one(tp, payload, settle)

    def _write_one(
        self, tp: TopicPartition, payload: bytes, then: Callable[[ErrorCode], None]
    ) -> None:
        sequence = self.sequences.get(tp, 0)
        self.sequences[tp] = sequence + 1
        # It may be sent again when the producer is in its next transaction.
        producer = self.producer_id, self.epoch, sequence
        world = self.world

        def send() -> None:
            batch = make_batch(payload=payload, producer=producer, attributes=TRANSACTIONAL_BIT)
            partition = ProducePartition(*tp, batch)
            request = ProduceRequest(self.transactional_id, -1, 5_000, [partition])
            leader = world.cluster.state(tp).leader
            world.send(leader, PRODUCE, self.produce_version, request, on_reply)

        def on_reply(answer: Any) -> None:
            if isinstance(answer, TransportError):
                world.later(send)
                return
            code = ErrorCode.of(answer.partitions[0].error_code)
            if code.retriable:
                world.later(send)
            else:
                then(code)

        send()


class Producer(Actor):
    """A transactional producer that commits two of three transactions; after a final error another
    one takes its place, and now and then one that does not wait for that."""

    end_version = 4
    replaced = False

    def run(self) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        self.ask(init_producer_id.API, 4, request, lambda a: [a.error_code], self._on_id)

    def _on_id(self, answer: Any, code: ErrorCode) -> None:
        assert code is ErrorCode.NONE, code
        self.take_over(answer)
        self.next()

    def take_over(self, answer: Any) -> None:
        """The id and epoch to go on with."""
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}

    def next(self) -> None:
        if self.world.over:
            return
        if not self.replaced and self.world.random.random() < 0.1:
            # Somebody starts a second one, while this one goes on.
            self.give_up()
        self.begin(Transaction(self))

    def begin(self, transaction: "Transaction") -> None:
        self.add(transaction.partitions, transaction.added)

    def note_end(self, answer: Any) -> None:
        """The transaction has ended as it was asked for."""

    def give_up(self) -> None:
        if not self.replaced:
            self.replaced = True
            self.world.later(type(self)(self.world, self.transactional_id).run)


class WritingProducer(Producer):
    """One that enlists nothing, has an epoch for each transaction, and aborts at any moment."""

    produce_version = 12
    end_version = 5

    def begin(self, transaction: "Transaction") -> None:
        if self.world.random.random() < IMPATIENT:
            self.world.later(transaction.abort)
        transaction.added(ErrorCode.NONE)

    def note_end(self, answer: Any) -> None:
        self.take_over(answer)


class Transaction:
    """One of a producer, from its first partition to its end."""

    def __init__(self, producer: Producer) -> None:
        world = producer.world
        self.producer = producer
        self.partitions = world.random.sample(PARTITIONS, 2)
        self.payload = b"<t%d>" % world.number()
        self.commits = world.random.random() < 0.7
        self.ends = False
        world.sent[self.payload] = self.partitions

    def added(self, code: ErrorCode) -> None:
        if code:
            self.producer.give_up()
        else:
            self.producer.write(self.partitions, self.payload, self.written)

    def written(self, code: ErrorCode) -> None:
        if self.ends:
            return
        if code:
            self.producer.give_up()
        else:
            self.end()

    def abort(self) -> None:
        if not self.ends and not self.producer.replaced:
            self.commits = False
            self.end()

    def end(self) -> None:
        self.ends = True
        producer = self.producer
        request = end_txn.EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=self.commits,
        )
        producer.ask(
            end_txn.API, producer.end_version, request, lambda a: [a.error_code], self.ended
        )

    def ended(self, answer: Any, code: ErrorCode) -> None:
        if code:
            self.producer.give_up()
            return
        self.producer.note_end(answer)
        world = self.producer.world
        (world.committed if self.commits else world.aborted).add(self.payload)
        world.next(self.producer.next)
