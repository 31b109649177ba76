"""The clients of coordinators, in callbacks. A request is repeated until its answer is final: after
a retriable error it goes to the present coordinator. Now and then one is sent a second time, on
another connection, and arrives late. A client that writes in a transaction enlists partitions, and
sends batches to their leaders.

Source: KIP-98, KIP-890, R-SPARK2.
"""

import itertools
from collections.abc import Callable, Sequence

from simulation.shared import Run
from simulation.transactions.group_ledger import GroupLedger
from simulation.transactions.ledger import AnswerTimes, ObservedTransaction, TransactionLedger
from simulation.transactions.state_log import CommittedDecisions, state_partition_of
from simulation.workload import BROKER_TIMEOUT_MS, MAX_RECORDS, Workload, WorkloadClient
from simulation.workload import check_acknowledged as check_written
from simulation.world.requests import enlist_request, enlisted_codes, make_batch, produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages import add_partitions_to_txn, find_coordinator
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT, read_header

MOST_BATCHES = 2
"""The most batches of a transaction in one partition."""

Then = Callable[[ErrorCode], None]

GROUP_KEY = 0
TRANSACTION_KEY = 1
"""The key_type of FindCoordinator."""
RETRY_MS = (20, 250)
ECHO_MS = (1, 3000)
"""The delays between a request and its echo."""
ECHOES = 0.1
"""The share of requests with an echo."""
ASKED_AGAIN = (ErrorCode.OPERATION_NOT_ATTEMPTED,)
"""The code, not retriable itself, after which a request is repeated: another partition of it was
refused for a retriable reason."""


class World(Workload):
    """The state that all transactional clients of one run share."""

    def __init__(self, run: Run, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(run)
        self.cluster = run.cluster
        self.checker = run.checker
        self.trace = run.trace
        self.choose = run.chooser("transactions")
        self.partitions = partitions
        self.over = False
        """True when no client begins anything new."""
        self.hurries = False
        """True when every transaction commits offsets, and no client waits long for that."""
        self.waiting: set[str] = set()
        """The clients that wait for an answer."""
        self.ledger = TransactionLedger(run.checker.record)
        self.groups = GroupLedger(run.checker.record)
        self.decisions = CommittedDecisions(run.checker)
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """Return a number that was not returned before."""
        return next(self._numbers)

    def later(self, act: Callable[[], None], *, within_ms: tuple[int, int] = RETRY_MS) -> None:
        """Call `act` after a random time."""
        self.cluster.loop.call_later(self.choose.randint(*within_ms), act)


class Way:
    """The way to the coordinator of a name, whose state lies in that partition."""

    def __init__(self, key: str, key_type: int, state: TopicPartition) -> None:
        self.key = key
        self.key_type = key_type
        self.state = state
        self.broker: int | None = None
        """The broker that was named last."""


class Asker(WorkloadClient):
    """A client that asks coordinators."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.run, world.choose, f"{name} {world.number()}")
        self.world = world
        self.is_doubtful = False
        """True while something that it has sent may arrive late."""
        self.answer_times = AnswerTimes(0, 0, False)
        """The details of the newest answer."""

    def ask(
        self,
        way: Way,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        codes: Callable[[Resp], Sequence[int]],
        then: Callable[[Resp, ErrorCode], None],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        has_echo: bool = True,
    ) -> None:
        """Send a request until its answer is final; `then` gets that and the worst of its codes.
        Once `is_wanted` returns False nothing is sent or called any more. `has_echo`: it may arrive
        twice."""
        world = self.world
        token = f"{self.name}: {spec.name} {world.number()}"
        world.waiting.add(token)

        def again() -> None:
            """Repeat the request after a moment, with a new search for the coordinator."""
            way.broker = None
            world.later(send)

        def send() -> None:
            if not is_wanted():
                world.waiting.discard(token)
                return
            broker = way.broker
            if broker is None:
                self._find_coordinator(way, send)
                return
            sent_ms, epoch = self.cluster.loop.now_ms, self.epoch_of(broker, way.state)

            def on_reply(answer: Resp | TransportError) -> None:
                if isinstance(answer, TransportError):
                    self.is_doubtful = True
                    again()
                    return
                found = [ErrorCode.of(code) for code in codes(answer) if code]
                final = [code for code in found if not code.retriable and code not in ASKED_AGAIN]
                if found and not final:
                    again()
                    return
                world.waiting.discard(token)
                if is_wanted():
                    leads = self._has_led(broker, way.state, epoch)
                    self.answer_times = AnswerTimes(sent_ms, self.cluster.loop.now_ms, leads)
                    then(answer, final[0] if final else ErrorCode.NONE)

            self.request(broker, spec, version, request, on_reply)
            self._echo(broker, spec, version, request, is_sent=has_echo)

        send()

    def _has_led(self, broker: int, tp: TopicPartition, epoch: int) -> bool:
        """Return True when the broker led under that epoch, and still does according to
        ZooKeeper."""
        state = self.checker.record(tp).state
        return (
            epoch >= 0
            and self.epoch_of(broker, tp) == epoch
            and state is not None
            and (state.leader, state.leader_epoch) == (broker, epoch)
        )

    def _find_coordinator(self, way: Way, then: Callable[[], None]) -> None:
        wanted = find_coordinator.FindCoordinatorRequest(key=way.key, key_type=way.key_type)

        def on_found(answer: find_coordinator.FindCoordinatorResponse | TransportError) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                self.world.later(then)
            else:
                way.broker = answer.node_id
                then()

        broker = self.choose.choice(self.cluster.brokers).id
        self.request(broker, find_coordinator.API, 3, wanted, on_found)

    def _echo(
        self,
        broker: int,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        *,
        is_sent: bool = True,
    ) -> None:
        if self.choose.random() >= ECHOES:
            return
        self.is_doubtful = True

        def send() -> None:
            if not is_sent:
                return
            self.request(
                broker, spec, version, request, lambda _: None, channel=f"{self.name} again"
            )

        self.world.later(send, within_ms=ECHO_MS)


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
        request = enlist_request(self.transactional_id, self.producer_id, self.epoch, partitions)
        self.ask(
            self.way,
            add_partitions_to_txn.API,
            3,
            request,
            enlisted_codes,
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
