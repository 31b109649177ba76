"""Who writes in a transaction: asks one thing after another, in callbacks, and what is retriable
again, of whoever the coordinator or leader is by then.

Rule: now and then a request is sent a second time, on another connection, and arrives when nobody
expects it any more. Source: KIP-98, KIP-890, R-SPARK2.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis import add_partitions_to_txn, find_coordinator
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.record_batch import TRANSACTIONAL_BIT, read_header
from storage_engine.simulation.checkers import Checker
from storage_engine.simulation.cluster import SimulatedCluster
from storage_engine.simulation.requests import make_batch, produce_request
from storage_engine.simulation.trace import Trace
from storage_engine.simulation.transactions.ledger import Transaction, TransactionLedger
from storage_engine.simulation.transactions.state_log import CommittedDecisions
from storage_engine.simulation.workload import BROKER_TIMEOUT_MS, MAX_RECORDS, Client
from storage_engine.simulation.workload import check_acknowledged as check_written

TRANSACTION_KEY = 1
"""key_type of FindCoordinator."""
RETRY_MS = (20, 250)
ECHO_MS = (1, 3000)
"""How long after a request its echo is sent."""
ECHOES = 0.1
"""Of the requests have one."""
MOST_BATCHES = 2
"""Of a transaction in one partition."""
ASKED_AGAIN = (ErrorCode.OPERATION_NOT_ATTEMPTED,)
"""Beside what is retriable: another partition of the request was refused for a reason that is."""

Codes = Callable[[Any], Sequence[int]]
Then = Callable[[ErrorCode], None]

_Topic = add_partitions_to_txn.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class World(Protocol):
    """What all of one run share."""

    cluster: SimulatedCluster
    checker: Checker
    trace: Trace
    choose: random.Random
    ledger: TransactionLedger
    decisions: CommittedDecisions
    partitions: Sequence[TopicPartition]
    over: bool
    waiting: set[str]
    """Who has asked for something, and has no answer yet."""

    def number(self) -> int:
        """Another one each time."""
        ...

    def later(self, act: Callable[[], None], *, within_ms: tuple[int, int] = RETRY_MS) -> None:
        """Do it after a random time."""
        ...


class Actor(Client):
    """With a transactional id, a producer id and an epoch."""

    produce_version = 8
    """Of a client that enlists partitions by itself; from 12 on leaders do it."""

    def __init__(self, world: World, transactional_id: str, name: str) -> None:
        super().__init__(world.cluster, world.checker, world.choose, f"{name} {world.number()}")
        self.world = world
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.is_doubtful = False
        """Something that it has sent may arrive late."""
        self._coordinator: int | None = None

    # --- the coordinator ---

    def ask(
        self,
        spec: Any,
        version: int,
        request: Any,
        codes: Codes,
        then: Callable[[Any, ErrorCode], None],
    ) -> None:
        """`then` gets the answer and the worst of its codes, once that is final."""
        world = self.world
        token = f"{self.name}: {spec.name} {world.number()}"
        world.waiting.add(token)

        def on_reply(answer: Any) -> None:
            if isinstance(answer, TransportError):
                self.is_doubtful = True
                self._ask_elsewhere(send)
                return
            found = [ErrorCode.of(code) for code in codes(answer) if code]
            final = [code for code in found if not code.retriable and code not in ASKED_AGAIN]
            if found and not final:
                self._ask_elsewhere(send)
                return
            world.waiting.discard(token)
            then(answer, final[0] if final else ErrorCode.NONE)

        def send() -> None:
            if self._coordinator is None:
                self._find_coordinator(send)
                return
            self.request(self._coordinator, spec, version, request, on_reply)
            self._echo(self._coordinator, spec, version, request)

        send()

    def _ask_elsewhere(self, send: Callable[[], None]) -> None:
        """After a moment, having asked who the coordinator is."""
        self._coordinator = None
        self.world.later(send)

    def _find_coordinator(self, then: Callable[[], None]) -> None:
        wanted = find_coordinator.FindCoordinatorRequest(
            key=self.transactional_id, key_type=TRANSACTION_KEY
        )

        def on_found(answer: Any) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                self.world.later(then)
            else:
                self._coordinator = answer.node_id
                then()

        broker = self.choose.choice(self.cluster.brokers).id
        self.request(broker, find_coordinator.API, 3, wanted, on_found)

    def _echo(self, broker: int, spec: Any, version: int, request: Any) -> None:
        if self.choose.random() >= ECHOES:
            return
        self.is_doubtful = True

        def send() -> None:
            self.request(
                broker, spec, version, request, lambda _: None, channel=f"{self.name} again"
            )

        self.world.later(send, within_ms=ECHO_MS)

    def enlist(self, partitions: Sequence[TopicPartition], then: Then) -> None:
        numbers: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, []).append(number)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[_Topic(name=t, partitions=some) for t, some in numbers.items()],
        )

        def codes(answer: Any) -> list[int]:
            return [
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]

        self.ask(add_partitions_to_txn.API, 3, request, codes, lambda _, code: then(code))

    # --- the leaders ---

    def write(
        self, transaction: Transaction, partitions: Sequence[TopicPartition], then: Then
    ) -> None:
        """A batch or two to each; `then` hears the worst, once all are answered."""
        left = len(partitions)
        worst = ErrorCode.NONE
        # Those of now: it may be in its next transaction when it sends the last of these.
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
        """So many batches, one after another."""
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

        def on_reply(answer: Any) -> None:
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
    """What is written in one transaction, under the producer's id and epoch of then."""

    def __init__(self, actor: Actor, transaction: Transaction) -> None:
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
