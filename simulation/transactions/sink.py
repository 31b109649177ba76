"""Micro-batches of an exactly-once sink: a driver, its tasks and their attempts, with losers,
drivers that die, replays with other rows and parallelism, and zombie drivers.

A driver follows its answers, as the connector does: OK and ALREADY_COMMITTED are success, a lost
member or a task that fails ends it, and the next one replays what follows the last batch that is
known to be committed. In half of the runs the queries copy one source, each from its own position,
and a replay has the same records of it. Source: R-SPARK2, R-SPARK3.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar
from uuid import UUID

from simulation.transactions.clients import Actor, Asker, Then, World, way_to
from simulation.transactions.copied_rows import SOURCES, CopiedRows, Ranges
from simulation.transactions.ledger import MicroBatch
from simulation.transactions.state_log import state_partition_of
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import member_transactional_id
from storage_engine.protocol.apis import abort_members, batch_heartbeat, commit_batch, join_batch
from storage_engine.protocol.apis.spec import ApiSpec, Req


class _Coded(Protocol):
    @property
    def error_code(self) -> int: ...


Answer = TypeVar("Answer", bound=_Coded)

SINK = "sink"
TIMEOUT_MS = 3000
PAUSE_MS = (50, 700)
MOST_TASKS = 3
LOSERS = 0.25
"""The share of tasks with a second attempt, which the commit does not name."""
EMPTY = 0.1
"""The share of tasks without rows."""
ZOMBIES = 0.2
"""The share of batches with a second driver."""
OVERSLEPT = 0.08
"""The share of drivers that commit when the attempts may have timed out, or another driver was
there."""
DIES_BEFORE = 0.06
DIES_AFTER = 0.1
"""The share of drivers that die before they commit, or before they get the answer."""
GIVES_UP = 0.06
"""The share of drivers that give their members up before they commit."""
COMMITS_YET = 0.3
"""The share of those drivers that commit them all the same."""
ABORTS = 0.7
"""The share of failing drivers that give up all members that they know."""
KEPT_ALIVE = 0.6
"""The share of drivers that send heartbeats as long as they live."""
HEARTBEAT_MS = (TIMEOUT_MS // 4, TIMEOUT_MS // 3)
BEGINS_ANEW = 0.04
"""The share of batches of a copying query after which another query begins, from the first record
on."""
RECORDS_A_SECOND = 100
"""The records that come to each partition of the source."""
MOST_RECORDS = 400
"""The most records of a source partition in one batch."""


class Attempt(Actor):
    """One attempt of one task of one driver."""

    def __init__(
        self, world: World, batch: MicroBatch, name: str, copied: CopiedRows, rows: Ranges
    ) -> None:
        """`rows` come from a source that other queries copy, too."""
        super().__init__(world, member_transactional_id(SINK), name)
        self._batch = batch
        self._copied = copied
        self._rows = rows
        self.transaction = world.ledger.begin(
            f"<{batch} by {self.name}>", state_partition_of(SINK), batch
        )

    @property
    def member(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def has_joined(self) -> bool:
        return self.producer_id != -1

    @property
    def highest(self) -> dict[TopicPartition, int]:
        """Return the last offset that it writes of each source partition, inclusive."""
        return {source: offsets[-1] for source, offsets in self._rows.items()}

    def work(self, partitions: list[TopicPartition], then: Then) -> None:
        """Join, enlist and write; `then` gets the outcome."""

        def joined(code: ErrorCode) -> None:
            if code or not partitions:
                then(code)
            else:
                self.enlist(partitions, enlisted)

        def enlisted(code: ErrorCode) -> None:
            if code:
                then(code)
                return
            self._batch.touched(self.answer_times)
            self.write(self.transaction, partitions, then)

        self._join(joined)

    def _join(self, then: Then) -> None:
        request = join_batch.JoinBatchRequest(
            sink=SINK,
            query=self._batch.query,
            batch=self._batch.number,
            timeout_ms=TIMEOUT_MS,
            nonce=UUID(int=self.world.number()),
        )
        was_known = self._batch.is_known

        def on_answer(answer: join_batch.JoinBatchResponse, code: ErrorCode) -> None:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            if code is ErrorCode.NONE:
                self._joined(answer, was_known=was_known)
            elif code is ErrorCode.ALREADY_COMMITTED:
                self.world.ledger.note_known(self.transaction)
                self.world.decisions.check_batch(SINK, self._batch.query, self._batch.number)
            then(code)

        self.ask(self.way, join_batch.API, 0, request, lambda a: [a.error_code], on_answer)

    def _joined(self, answer: join_batch.JoinBatchResponse, *, was_known: bool) -> None:
        if was_known:
            self.world.ledger.check_replay(self.transaction, "JoinBatch")
        self.transaction.joined_ms = self.answer_times.sent_ms
        self._batch.touched(self.answer_times)
        fresh = {
            source: range(max(offsets.start, answer.origins.get(source, -1) + 1), offsets.stop)
            for source, offsets in self._rows.items()
        }
        self._rows = {source: offsets for source, offsets in fresh.items() if offsets}
        self._copied.writes(self.transaction, self._rows)


class Query:
    """A streaming query, with its checkpoint. What it copies from its source is planned once."""

    def __init__(self, world: World, name: str, copied: CopiedRows, *, copies: bool) -> None:
        self.world = world
        self.name = name
        self.copied = copied
        self.last = -1
        """The last batch in the checkpoint: a driver knows that it is committed."""
        self._copies = copies
        self._first_name = name
        self._ends: list[dict[TopicPartition, int]] = []
        """By batch, the exclusive end of each source partition."""

    def run(self) -> None:
        """Start a driver for the batch after the checkpoint."""
        if not self.world.over:
            Driver(self, self.last + 1).run()

    def rows(self, number: int) -> Ranges:
        """Return what a batch copies; the same for all its drivers."""
        if not self._copies:
            return {}
        choose = self.world.choose
        begin = self._ends[number - 1] if number else dict.fromkeys(SOURCES, 0)
        if number == len(self._ends):
            there = 1 + self.world.cluster.loop.now_ms * RECORDS_A_SECOND // 1000
            self._ends.append(
                {
                    source: min(there, begin[source] + choose.randint(0, MOST_RECORDS))
                    for source in SOURCES
                }
            )
        return {source: range(begin[source], self._ends[number][source]) for source in SOURCES}

    def committed(self, number: int) -> None:
        """Record that a driver knows that the batch is committed."""
        self.last = max(self.last, number)
        if not self._copies:
            return
        self.copied.claims(f"batch {number} of {self.name}", self._ends[number])
        if self.world.choose.random() < BEGINS_ANEW:
            self.name = f"{self._first_name} {self.world.number()}"
            self.last = -1
            self._ends = []


class Driver(Asker):
    """The driver of one micro-batch; `is_zombie`: it runs beside another one without being aware of
    that."""

    def __init__(self, query: Query, number: int, *, is_zombie: bool = False) -> None:
        self._number = query.world.number()
        super().__init__(query.world, f"driver {self._number}")
        self._query = query
        self._batch = query.world.ledger.batch(query.name, number)
        self._rows = query.rows(number)
        self._way = way_to(member_transactional_id(SINK))
        self._is_zombie = is_zombie
        self._is_over = False
        """True when it has died, or its batch has ended one way or another."""
        self._outcomes: list[ErrorCode] = []
        self._winners: list[Attempt] = []
        self._losers: list[Attempt] = []

    def run(self) -> None:
        world, choose = self.world, self.choose
        tasks = range(choose.randint(1, MOST_TASKS))
        rows = self._split(len(tasks))
        self._winners = [self._attempt(task, rows[task]) for task in tasks]
        for task, attempt in enumerate(self._winners):
            attempt.work(self._partitions(rows[task]), self._done)
        for task in tasks:
            if choose.random() < LOSERS:
                loser = self._attempt(task, rows[task])
                self._losers.append(loser)
                loser.work(self._partitions(rows[task]), lambda _: None)
        if choose.random() < KEPT_ALIVE:
            world.later(self._keep_alive, within_ms=HEARTBEAT_MS)
        if not self._is_zombie and choose.random() < ZOMBIES:
            zombie = Driver(self._query, self._batch.number, is_zombie=True)
            world.later(zombie.run, within_ms=(1, 1500))

    def _split(self, tasks: int) -> list[Ranges]:
        """Give each task a part of each source partition, or nothing of it."""
        found: list[Ranges] = [{} for _ in range(tasks)]
        for source, offsets in self._rows.items():
            cuts = sorted(self.choose.randint(0, len(offsets)) for _ in range(tasks - 1))
            for task, (begin, end) in enumerate(
                zip([0, *cuts], [*cuts, len(offsets)], strict=True)
            ):
                if begin < end:
                    found[task][source] = offsets[begin:end]
        return found

    def _attempt(self, task: int, rows: Ranges) -> Attempt:
        name = f"{self._batch.query} {self._number}.{task}"
        return Attempt(self.world, self._batch, name, self._query.copied, rows)

    def _partitions(self, rows: Ranges) -> list[TopicPartition]:
        choose, partitions = self.choose, self.world.partitions
        if not rows and choose.random() < EMPTY:
            return []
        return choose.sample(partitions, choose.randint(1, len(partitions)))

    def _asks(
        self, spec: ApiSpec[Req, Answer], request: Req, then: Callable[[ErrorCode], None]
    ) -> None:
        def on_answer(_answer: Answer, code: ErrorCode) -> None:
            then(code)

        self.ask(self._way, spec, 0, request, lambda a: [a.error_code], on_answer)

    def _keep_alive(self) -> None:
        if self._is_over or self.world.over:
            return

        def on_answer(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._batch.touched(self.answer_times)
            self.world.later(self._keep_alive, within_ms=HEARTBEAT_MS)

        batch = self._batch
        request = batch_heartbeat.BatchHeartbeatRequest(
            sink=SINK, query=batch.query, batch=batch.number
        )
        self._asks(batch_heartbeat.API, request, on_answer)

    def _done(self, code: ErrorCode) -> None:
        """Record the end of a task."""
        self._outcomes.append(code)
        if len(self._outcomes) < len(self._winners):
            return
        drained = self._outcomes.count(ErrorCode.ALREADY_COMMITTED)
        has_failed = drained + self._outcomes.count(ErrorCode.NONE) < len(self._outcomes)
        fate = self.choose.random()
        if has_failed:
            self._fail()
        elif fate < DIES_BEFORE:
            self._die()
        elif fate < DIES_BEFORE + OVERSLEPT:
            late = TIMEOUT_MS // 2, 2 * TIMEOUT_MS
            self.world.later(lambda: self._commit(drained), within_ms=late)
        elif fate < DIES_BEFORE + OVERSLEPT + GIVES_UP and not drained:
            self._abort(self._given_up)
        else:
            self._commit(drained)

    def _commit(self, drained: int) -> None:
        world, batch = self.world, self._batch
        named = [each for each in self._winners if each.has_joined]
        members = frozenset(each.transaction for each in named)
        origins = _highest(named)
        if not drained:
            batch.requests.append(members)
            for transaction in members:
                transaction.asked = True
            if origins:
                world.ledger.note_moving(batch)
        was_known = batch.is_known
        dies = self.choose.random() < DIES_AFTER
        if dies:
            self._die()

        def on_answer(code: ErrorCode) -> None:
            world.trace.note(f"{batch} by driver {self._number}: {code.name}")
            if code is ErrorCode.NONE:
                if was_known:
                    world.ledger.check_replay(self._winners[0].transaction, "CommitBatch")
                world.ledger.record_batch_answer(batch, members)
            is_committed = code in (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED)
            if is_committed:
                world.ledger.note_known(self._winners[0].transaction)
                world.decisions.check_batch(SINK, batch.query, batch.number)
            elif code is ErrorCode.MEMBER_LOST:
                world.ledger.check_loss(
                    batch,
                    members,
                    self.answer_times,
                    timeout_ms=TIMEOUT_MS,
                    has_origins=bool(origins),
                )
            if not dies:
                self._end_batch(is_committed=is_committed)

        request = commit_batch.CommitBatchRequest(
            sink=SINK,
            query=batch.query,
            batch=batch.number,
            members=frozenset(each.member for each in named),
            drained=drained,
            origins=origins,
        )
        self._asks(commit_batch.API, request, on_answer)

    def _end_batch(self, *, is_committed: bool) -> None:
        if not is_committed:
            self._fail()
            return
        self._is_over = True
        if self._query.name == self._batch.query:
            self._query.committed(self._batch.number)
        if not self._is_zombie:
            self.world.later(self._query.run, within_ms=PAUSE_MS)

    def _fail(self) -> None:
        """Have another driver replay the batch, with other tasks and rows."""
        if self.choose.random() < ABORTS:
            self._abort(lambda _: None)
        self._die()

    def _die(self) -> None:
        if not self._is_over:
            self._is_over = True
            if not self._is_zombie:
                self.world.later(self._query.run, within_ms=PAUSE_MS)

    def _abort(self, then: Callable[[ErrorCode], None]) -> None:
        """Give up all members that it knows."""
        named = [each for each in [*self._winners, *self._losers] if each.has_joined]
        for each in named:
            each.transaction.is_given_up = True
        not_asked = [each.transaction for each in named if not each.transaction.asked]

        def on_answer(code: ErrorCode) -> None:
            self.world.trace.note(f"members of driver {self._number} given up: {code.name}")
            if code is ErrorCode.NONE and self.answer_times.is_of_leader:
                for transaction in not_asked:
                    if not transaction.asked:
                        self.world.ledger.record_answer(transaction, commits=False)
            then(code)

        members = frozenset(each.member for each in named)
        request = abort_members.AbortMembersRequest(
            sink=SINK, query=self._batch.query, members=members
        )
        self._asks(abort_members.API, request, on_answer)

    def _given_up(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE and self.choose.random() < COMMITS_YET:
            self._commit(0)
        else:
            self._die()


def _highest(attempts: Iterable[Attempt]) -> dict[TopicPartition, int]:
    """Return the last offset that they have written of each source partition, inclusive."""
    origins: dict[TopicPartition, int] = {}
    for attempt in attempts:
        for source, offset in attempt.highest.items():
            origins[source] = max(offset, origins.get(source, offset))
    return origins
