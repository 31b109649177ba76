"""Micro-batches of an exactly-once sink: a driver, its tasks and their attempts, with losers,
drivers that die, replays with other rows and parallelism, and zombie drivers.

Rule: a driver goes by what it is told, as the connector does: OK and ALREADY_COMMITTED are success,
a lost member or a task that fails ends it, and the next one replays what follows the last batch
that is known to be committed. Source: R-SPARK2, EXACTLY_ONCE.md.
"""

from collections.abc import Callable
from uuid import UUID

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.sink_names import member_transactional_id
from storage_engine.protocol.apis import commit_batch, join_batch
from storage_engine.simulation.transactions.actor import Actor, World
from storage_engine.simulation.transactions.ledger import MicroBatch
from storage_engine.simulation.transactions.state_log import state_partition_of

SINK = "sink"
TIMEOUT_MS = 3000
PAUSE_MS = (50, 700)
MOST_TASKS = 3
LOSERS = 0.25
"""Of the tasks have a second attempt, which nobody names."""
EMPTY = 0.1
"""Of the tasks have no rows."""
ZOMBIES = 0.2
"""Of the batches have a second driver."""
OVERSLEPT = 0.08
"""Of the drivers commit when the attempts may have timed out, or another driver was there."""
DIES_BEFORE = 0.06
DIES_AFTER = 0.1
"""Of the drivers die before they commit, or before they hear what came of it."""

Then = Callable[[ErrorCode], None]


class Query:
    """A streaming query, with its checkpoint."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.last = -1
        """In the checkpoint: a driver was told that it is committed."""

    def run(self) -> None:
        """Start a driver that goes on behind the checkpoint."""
        if not self.world.over:
            Driver(self, self.last + 1).run()


class Attempt(Actor):
    """A task attempt in a micro-batch."""

    def __init__(self, query: Query, batch: MicroBatch, driver: int, task: int) -> None:
        world = query.world
        super().__init__(world, member_transactional_id(SINK), f"{query.name} {driver}.{task}")
        self._query = query
        self._batch = batch
        state_partition = state_partition_of(SINK)
        self.transaction = world.ledger.begin(f"<{batch} by {self.name}>", state_partition, batch)

    @property
    def member(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def work(self, partitions: list[TopicPartition], then: Then) -> None:
        """Join, enlist and write; `then` hears how far it came."""

        def joined(code: ErrorCode) -> None:
            if code or not partitions:
                then(code)
            else:
                self.enlist(partitions, enlisted)

        def enlisted(code: ErrorCode) -> None:
            if code:
                then(code)
            else:
                self.write(self.transaction, partitions, then)

        self._join(joined)

    def _join(self, then: Then) -> None:
        request = join_batch.JoinBatchRequest(
            sink=SINK,
            query=self._query.name,
            batch=self._batch.number,
            timeout_ms=TIMEOUT_MS,
            nonce=UUID(int=self.world.number()),
        )
        was_known = self._batch.is_known

        def on_answer(answer: join_batch.JoinBatchResponse, code: ErrorCode) -> None:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            if code is ErrorCode.NONE and was_known:
                self.world.ledger.check_replay(self.transaction, "JoinBatch")
            if code is ErrorCode.ALREADY_COMMITTED:
                self.world.ledger.note_known(self.transaction)
                self.world.decisions.check_batch(SINK, self._query.name, self._batch.number)
            then(code)

        self.ask(join_batch.API, 0, request, lambda a: [a.error_code], on_answer)


class Driver:
    """Of one micro-batch; `is_zombie`: beside another one, which knows nothing of it."""

    def __init__(self, query: Query, number: int, *, is_zombie: bool = False) -> None:
        self._query = query
        self._world = query.world
        self._batch = query.world.ledger.batch(query.name, number)
        self._is_zombie = is_zombie
        self._number = query.world.number()
        self._outcomes: list[ErrorCode] = []
        self._winners: list[Attempt] = []

    def run(self) -> None:
        world, choose = self._world, self._world.choose
        tasks = range(choose.randint(1, MOST_TASKS))
        self._winners = [self._attempt(task) for task in tasks]
        for attempt in self._winners:
            attempt.work(self._partitions(), self._done)
        for task in tasks:
            if choose.random() < LOSERS:
                self._attempt(task).work(self._partitions(), lambda _: None)
        if not self._is_zombie and choose.random() < ZOMBIES:
            zombie = Driver(self._query, self._batch.number, is_zombie=True)
            world.later(zombie.run, within_ms=(1, 1500))

    def _attempt(self, task: int) -> Attempt:
        return Attempt(self._query, self._batch, self._number, task)

    def _partitions(self) -> list[TopicPartition]:
        choose, partitions = self._world.choose, self._world.partitions
        if choose.random() < EMPTY:
            return []
        return choose.sample(partitions, choose.randint(1, len(partitions)))

    def _done(self, code: ErrorCode) -> None:
        """A task has ended."""
        self._outcomes.append(code)
        if len(self._outcomes) < len(self._winners):
            return
        drained = self._outcomes.count(ErrorCode.ALREADY_COMMITTED)
        has_failed = drained + self._outcomes.count(ErrorCode.NONE) < len(self._outcomes)
        if has_failed or self._world.choose.random() < DIES_BEFORE:
            self._fail()
        elif self._world.choose.random() < OVERSLEPT:
            late = TIMEOUT_MS // 2, 2 * TIMEOUT_MS
            self._world.later(lambda: self._commit(drained), within_ms=late)
        else:
            self._commit(drained)

    def _commit(self, drained: int) -> None:
        world, batch = self._world, self._batch
        pairs = zip(self._winners, self._outcomes, strict=True)
        named = [each for each, _ in pairs if each.producer_id != -1]
        members = frozenset(each.transaction for each in named)
        request = commit_batch.CommitBatchRequest(
            sink=SINK,
            query=batch.query,
            batch=batch.number,
            members=frozenset(each.member for each in named),
            drained=drained,
        )
        if not drained:
            batch.requests.append(members)
            for transaction in members:
                transaction.asked = True
        was_known = batch.is_known
        dies = world.choose.random() < DIES_AFTER
        if dies:
            self._fail()

        def on_answer(_answer: object, code: ErrorCode) -> None:
            world.trace.note(f"{batch} by driver {self._number}: {code.name}")
            first = self._winners[0].transaction
            if code is ErrorCode.NONE:
                if was_known:
                    world.ledger.check_replay(first, "CommitBatch")
                world.ledger.batch_told(batch, members)
            if code in (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED):
                world.ledger.note_known(first)
                world.decisions.check_batch(SINK, batch.query, batch.number)
            if dies:
                return
            if code in (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED):
                self._query.last = max(self._query.last, batch.number)
                if not self._is_zombie:
                    world.later(self._query.run, within_ms=PAUSE_MS)
            else:
                self._fail()

        asks = self._winners[0].ask
        asks(commit_batch.API, 0, request, lambda a: [a.error_code], on_answer)

    def _fail(self) -> None:
        """Another driver replays it, with other tasks and rows."""
        if not self._is_zombie:
            self._world.later(self._query.run, within_ms=PAUSE_MS)
