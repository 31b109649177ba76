"""Transactional producers: they commit and abort, die and come back, continue after they were
replaced, and let transactions time out.

A producer that enlists partitions itself asks for its next epoch before it continues where
something of its last transaction may still arrive, its own request or a marker: that would end or
open the next one (KIP-360), and no broker can know. It aborts without asking for that first, though
what it gave up may arrive behind the marker: brokers can recognise that. A producer with an epoch
for each transaction need not ask (KIP-890).
"""

from collections.abc import Sequence

from simulation.transactions.clients import Actor, Then, World
from simulation.transactions.group_offsets import OffsetSender
from simulation.transactions.ledger import ObservedTransaction
from simulation.transactions.state_log import state_partition_of
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import end_txn, init_producer_id

TIMEOUT_MS = 4000
LAST_MS = (1, 600)
"""The times between the last batch of a transaction and its end."""
PAUSE_MS = (50, 600)
REPLACED = 0.1
"""The share of transactions that begin while another producer with the same name starts."""
OVERSLEPT = 0.1
"""The share of transactions that end after the coordinator, or a later producer, has aborted
them."""
DROPPED = 0.08
"""The share of transactions that never end: their producer dies, and another one comes."""
COMMITTED = 0.7
LINGERS_MS = 12_000
"""The time after which everything has arrived that a broker sent on a connection that it gave
up."""
IMPATIENT = 0.3
"""The share of transactions, with an epoch of their own, that are aborted while some of their
batches are under way."""
WITH_OFFSETS = 0.6
"""The share of transactions that commit offsets of a group."""
LEFT_WAITING = 0.6
"""The share of commits of offsets that are given up, and their transaction aborted, unless they are
answered soon."""
WAITS_MS = (50, 1000)


class TransactionalProducer(Actor):
    """A producer that enlists partitions itself."""

    end_version = 4

    def __init__(self, world: World, transactional_id: str) -> None:
        super().__init__(world, transactional_id, transactional_id)
        self._is_replaced = False
        self._open: ObservedTransaction | None = None
        """The transaction that it has not yet asked to end."""
        self._offsets = OffsetSender(self)

    def run(self) -> None:
        """Get an id and an epoch, which fences other producers of the name."""
        self._init(-1, -1)

    def _init(self, producer_id: int, epoch: int) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.is_doubtful = False
        self.ask(self.way, init_producer_id.API, 4, request, lambda a: [a.error_code], self._on_id)

    def _on_id(self, answer: init_producer_id.InitProducerIdResponse, code: ErrorCode) -> None:
        if code:
            self._give_up()
            return
        self._take(answer)
        self._begin()

    def _take(
        self, answer: init_producer_id.InitProducerIdResponse | end_txn.EndTxnResponse
    ) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}

    def _next(self) -> None:
        if self.world.over:
            return
        if self._may_be_overtaken() and self.end_version < end_txn.API.max_version:
            self._init(self.producer_id, self.epoch)
        else:
            self._begin()

    def _may_be_overtaken(self) -> bool:
        """Return True when something of its last transaction may still arrive, a marker too."""
        given_up_ms = self.cluster.network.given_up_ms
        is_recent = self.cluster.loop.now_ms - given_up_ms < LINGERS_MS
        return self.is_doubtful or (given_up_ms >= 0 and is_recent)

    def _begin(self) -> None:
        world = self.world
        if world.over:
            return
        if self.choose.random() < REPLACED:
            self._replace()
        with_offsets = world.hurries or self.choose.random() < WITH_OFFSETS
        partitions = self.choose.sample(
            world.partitions, self.choose.randint(1 - with_offsets, len(world.partitions))
        )
        name = f"{self.transactional_id}/{world.number()} of {self.producer_id}.{self.epoch}"
        transaction = world.ledger.begin(name, state_partition_of(self.transactional_id))
        self._open = transaction
        left = bool(partitions) + with_offsets
        worst = ErrorCode.NONE

        def done(code: ErrorCode) -> None:
            nonlocal left, worst
            left -= 1
            worst = worst or code
            if not left:
                self._written(transaction, worst)

        def on_enlisted(code: ErrorCode) -> None:
            if code:
                self._give_up()
                return
            if partitions:
                self.write(transaction, partitions, done)
            if with_offsets:
                self._commit_offsets(transaction, done)

        self._enlist(transaction, partitions, on_enlisted)

    def _commit_offsets(self, transaction: ObservedTransaction, then: Then) -> None:
        self._offsets.commit(
            transaction,
            enlists=self.end_version < end_txn.API.max_version,
            is_wanted=lambda: self._open is transaction,
            then=then,
        )
        if self.world.hurries or self.choose.random() < LEFT_WAITING:

            def give_up() -> None:
                if self._open is transaction and self._offsets.is_waiting(transaction):
                    # It may arrive, or have its turn, after the end.
                    self.is_doubtful = True
                    self._end(transaction, commits=False)

            self.world.later(give_up, within_ms=WAITS_MS)

    def _enlist(
        self, _transaction: ObservedTransaction, partitions: Sequence[TopicPartition], then: Then
    ) -> None:
        if partitions:
            # An echo would begin another transaction under the same epoch, which what this one has
            # left under way would join (as in Kafka; KIP-890 ends that).
            self.enlist(partitions, then, has_echo=False)
        else:
            then(ErrorCode.NONE)

    def _written(self, transaction: ObservedTransaction, code: ErrorCode) -> None:
        if self._open is not transaction:
            return
        if code:
            self._give_up()
            return
        fate = self.choose.random()
        if fate < DROPPED:
            self.world.trace.note(f"{self.name} dies in {transaction.name}")
            self._give_up()
        elif fate < DROPPED + OVERSLEPT:
            # The transaction may have timed out by then, or another producer may have taken its
            # place.
            self._replace()
            late = 500, TIMEOUT_MS * 2
            self.world.later(lambda: self._end(transaction, commits=True), within_ms=late)
        else:
            commits = self.choose.random() < COMMITTED
            self.world.later(lambda: self._end(transaction, commits=commits), within_ms=LAST_MS)

    def _end(self, transaction: ObservedTransaction, *, commits: bool) -> None:
        if self._open is not transaction:
            return
        self._open = None
        transaction.asked = commits
        request = end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )

        def on_ended(answer: end_txn.EndTxnResponse, code: ErrorCode) -> None:
            if code:
                self._give_up()
                return
            self._ended(transaction, answer, commits=commits)
            self.world.later(self._next, within_ms=PAUSE_MS)

        self.ask(
            self.way, end_txn.API, self.end_version, request, lambda a: [a.error_code], on_ended
        )

    def _ended(
        self, transaction: ObservedTransaction, _answer: end_txn.EndTxnResponse, *, commits: bool
    ) -> None:
        world = self.world
        world.trace.note(f"{transaction.name} was told: {'committed' if commits else 'aborted'}")
        world.ledger.record_answer(transaction, commits=commits)
        if commits:
            world.decisions.check_commit(self.transactional_id)

    def _give_up(self) -> None:
        """Start another producer, after a final error or for no reason."""
        if not self._is_replaced:
            self._replace()

    def _replace(self) -> None:
        if not self._is_replaced and not self.world.over:
            self._is_replaced = True
            self.world.later(type(self)(self.world, self.transactional_id).run)


class WritingProducer(TransactionalProducer):
    """A producer that leaves enlisting to the leaders, and has an epoch for each transaction."""

    produce_version = 12
    end_version = 5

    def _enlist(
        self, transaction: ObservedTransaction, _partitions: Sequence[TopicPartition], then: Then
    ) -> None:
        if self.choose.random() < IMPATIENT:
            self.world.later(lambda: self._end(transaction, commits=False), within_ms=(1, 400))
        then(ErrorCode.NONE)

    def _ended(
        self, transaction: ObservedTransaction, answer: end_txn.EndTxnResponse, *, commits: bool
    ) -> None:
        super()._ended(transaction, answer, commits=commits)
        self._take(answer)
