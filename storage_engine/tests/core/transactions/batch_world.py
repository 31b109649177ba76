"""Drivers, task attempts, partition leaders and the real coordinator in a world with faults.

What may happen, at any moment and in any order: a request, an answer, a marker or its
acknowledgement is lost, comes late or twice; the coordinator is lost with any part of its log that
is not replicated, and the next one reads a log that compaction has left with one record a key; a
partition changes its leader, who knows no producer's guard; a driver dies or lives on as a zombie
beside its successor, who computes the batch anew with other rows and other parallelism; attempts of
a task run side by side, and go on when nobody waits for them; one batch in three has no rows, and
its attempts don't join. Some drivers tell their run: of these the one that the coordinator hears of
last goes on, the others are told. Not modelled: loss of replicated records; a client that breaks
the protocol.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from storage_engine.core.coordinator_log import AppendRecord, Moment, Replicated
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_events import (
    CheckTimeouts,
    CommitMicroBatch,
    Effect,
    EnlistPartitions,
    Event,
    JoinMicroBatch,
    MarkersWritten,
    SendMarkers,
    TransactionAnswer,
    VerifyMember,
)
from storage_engine.core.transactions.transaction_state import (
    LedgerKey,
    LedgerRecord,
    MemberKey,
    StateKey,
    StateRecord,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.tests.core.outcome import outcome
from storage_engine.tests.core.transactions.batch_world_parts import (
    Client,
    OutputPartition,
    Produce,
    Row,
    Talk,
    Violation,
    check_runs,
    demand,
)

SINK = "sink"
SOURCE = TopicPartition("source", 0)
OUT = [TopicPartition("out", 0), TopicPartition("out", 1)]
ROWS_PER_BATCH = 3
TIMEOUT_MS = 100

DONE = (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED)
REPLACED = -1
"""In place of a producer id: a task was told that its run is replaced."""


class World:
    """All of it; `keyed`: the queries drop by origin what the other has copied."""

    owner = ""
    """The owner of all batches."""
    telling = 0.5
    """The share of drivers that tell their run."""

    def __init__(
        self,
        seed: int,
        factory: Callable[[], TransactionCoordinator] = TransactionCoordinator,
        *,
        keyed: bool = False,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.factory = factory
        self.keyed = keyed
        self.faulty = True
        self.now_ms = 0
        self.out = {tp: OutputPartition() for tp in OUT}
        self.log: list[tuple[StateKey, StateRecord | None]] = []
        self.replicated = 0
        self.epoch = 0
        self.ids = 0
        self.letters: list[Callable[[], None]] = []
        self.clients: list[Client] = []
        self.drivers: dict[str, Client] = {}
        """The newest of each query."""
        self.logged = self.queries()
        """Last batch in Spark's commit log, by query."""
        self.lost: dict[str, int] = dict.fromkeys(self.logged, 0)
        self.replaced = 0
        """Drivers that were told so."""
        self.winners: dict[tuple[str, int], list[frozenset[int]]] = {}
        """The members that drivers asked to commit, by batch."""
        self.written: dict[int, list[tuple[TopicPartition, Row]]] = {}
        """The rows of each attempt that has ended well."""
        self.elect()
        for query in self.logged:
            self.start_driver(query)

    def queries(self) -> dict[str, int]:
        return {"a": -1, "b": -1} if self.keyed else {"a": -1}

    # --- the coordinator ---

    def elect(self) -> None:
        """Another coordinator; what is replicated stays, of the rest a part."""
        keep = self.random.randint(self.replicated, len(self.log))
        del self.log[keep:]
        self.base = len(self.log)
        self.epoch += 1
        self.replies: dict[int, Callable[[TransactionAnswer], None]] = {}
        self.unmarked: dict[tuple[int, TopicPartition], SendMarkers] = {}
        self.coordinator = self.factory()
        self.run(outcome(self.coordinator.restore(self.live(), Moment(self.now_ms, self.now_ms))))

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord():
                    self.log.append(effect.entry)
                case SendMarkers():
                    for tp in sorted(effect.partitions):
                        self.unmarked[effect.producer_id, tp] = effect
                        self.mail_marker(effect, tp)
                case TransactionAnswer():
                    reply = self.replies.pop(effect.request)
                    self.mail(lambda reply=reply, answer=effect: reply(answer))

    def step(self, event: Event) -> None:
        self.run(self.coordinator.step(event))

    def replicate(self) -> None:
        if self.replicated < len(self.log) or self.replicated == self.base:
            self.replicated = self.random.randint(self.replicated, len(self.log))
            if self.replicated >= self.base:
                self.step(Replicated(number=self.replicated - self.base))

    def mail_marker(self, markers: SendMarkers, tp: TopicPartition) -> None:
        epoch = self.epoch

        def arrive() -> None:
            if self.faulty and self.random.random() < 0.6:
                return
            if self.out[tp].mark(markers.producer_id, markers.commits, epoch):
                self.mail(acknowledge)

        def acknowledge() -> None:
            if epoch == self.epoch:
                self.unmarked.pop((markers.producer_id, tp), None)
                self.step(
                    MarkersWritten(
                        producer_id=markers.producer_id,
                        producer_epoch=markers.producer_epoch,
                        partitions=frozenset({tp}),
                        now_ms=self.now_ms,
                    )
                )

        self.mail(arrive)

    # --- requests ---

    def mail(self, letter: Callable[[], None]) -> None:
        self.letters.append(letter)

    def serve(self, asked: Any, reply: Callable[[Any], None]) -> None:
        if isinstance(asked, Produce):
            self.serve_produce(asked, reply)
            return
        self.ids += 1
        event = replace(asked, request=self.ids)
        if hasattr(event, "fresh_producer_id"):
            event = replace(event, fresh_producer_id=self.ids)
        if hasattr(event, "now_ms"):
            event = replace(event, now_ms=self.now_ms)
        self.replies[self.ids] = reply
        self.step(event)

    def serve_produce(self, produce: Produce, reply: Callable[[Any], None]) -> None:
        """Append, after the coordinator's word when there is none yet."""
        partition = self.out[produce.partition]
        if partition.guards.is_open(produce.producer_id, 0):
            error = partition.append(produce)
            self.mail(lambda: reply(error))
            return
        guards = partition.guards
        question = guards.ask(produce.producer_id, 0)

        def said(answer: TransactionAnswer) -> None:
            guards.note_answer(question, enlisted=answer.error is ErrorCode.NONE)
            error = partition.append(produce)
            self.mail(lambda: reply(error))

        verify = VerifyMember(
            request=0,
            producer_id=produce.producer_id,
            producer_epoch=0,
            partitions=frozenset({produce.partition}),
        )
        self.mail(lambda: self.serve(verify, said))

    # --- Spark ---

    def start_driver(self, query: str) -> None:
        """Beside the last one, if that lives."""

        def ended(_: Any) -> None:
            if self.drivers[query] is client:
                self.start_driver(query)

        self.ids += 1
        run = UUID(int=self.ids) if self.random.random() < self.telling else None
        client = Client(self, self.drive(query, self.logged[query] + 1, run), ended)
        self.drivers[query] = client
        self.clients.append(client)

    def drive(self, query: str, batch: int, run: UUID | None) -> Talk:
        while True:
            tasks = self.random.randint(1, 3)
            results: dict[int, int | None] = {}
            """Producer id by task, or None: it was told that the batch is committed."""
            for task in range(tasks):
                for _ in range(self.random.choice((1, 1, 2)) if self.has_rows(batch) else 0):
                    self.start_attempt(query, batch, task, tasks, results, run)
            if self.has_rows(batch):
                yield lambda results=results, tasks=tasks: len(results) == tasks
            if REPLACED in results.values():
                self.replaced += 1
                return
            members = frozenset(each for each in results.values() if each is not None)
            self.winners.setdefault((query, batch), []).append(members)
            top = ROWS_PER_BATCH * (batch + 1) - 1
            answer = yield CommitMicroBatch(
                request=0,
                sink=SINK,
                query=query,
                batch=batch,
                members=frozenset((each, 0) for each in members),
                drained=len(results) - len(members),
                now_ms=self.now_ms,
                origins={SOURCE: top} if self.keyed else {},
                owner=self.owner,
                run=run,
            )
            demand(answer.error is not ErrorCode.NOT_COMMITTED, "a task drained without reason")
            if answer.error not in DONE:
                self.lost[query] += answer.error is not ErrorCode.RUN_REPLACED
                self.replaced += answer.error is ErrorCode.RUN_REPLACED
                return
            self.logged[query] = max(self.logged[query], batch)
            if not self.goes_on(query, batch):
                return
            batch += 1

    def goes_on(self, query: str, batch: int) -> bool:
        """Whether the driver has another batch behind that one."""
        return True

    def has_rows(self, batch: int) -> bool:
        """Whoever computes the batch."""
        return (batch + self.seed) % 3 > 0

    def start_attempt(
        self,
        query: str,
        batch: int,
        task: int,
        tasks: int,
        results: dict[int, int | None],
        run: UUID | None,
    ) -> None:
        def ended(result: tuple[bool, int | None]) -> None:
            done, producer_id = result
            if done:
                results.setdefault(task, producer_id)
            elif task not in results:
                self.start_attempt(query, batch, task, tasks, results, run)

        self.clients.append(Client(self, self.attempt(query, batch, task, tasks, run), ended))

    def attempt(self, query: str, batch: int, task: int, tasks: int, run: UUID | None) -> Talk:
        """(done, producer id, REPLACED or None); not done: Spark runs the task again."""
        rows = range(ROWS_PER_BATCH * batch, ROWS_PER_BATCH * (batch + 1))[task::tasks]
        joined = yield self.join(query, batch, run)
        if joined.error is ErrorCode.RUN_REPLACED:
            return True, REPLACED
        if joined.error is ErrorCode.ALREADY_COMMITTED:
            return True, None
        written: list[tuple[TopicPartition, Row]] = []
        fresh = [each for each in rows if each > joined.origins.get(SOURCE, -1)]
        for offset in fresh if self.keyed else rows:
            tp = self.random.choice(OUT)
            enlisted = yield EnlistPartitions(
                request=0,
                producer_id=joined.producer_id,
                producer_epoch=0,
                partitions=frozenset({tp}),
                now_ms=0,
            )
            error = enlisted.error
            if not error:
                sequence = sum(each == tp for each, _ in written)
                row = Row(query, batch, offset)
                error = yield Produce(joined.producer_id, tp, sequence, row)
                written.append((tp, row))
            if error:
                again = yield self.join(query, batch, run)
                if again.error is ErrorCode.RUN_REPLACED:
                    return True, REPLACED
                return again.error is ErrorCode.ALREADY_COMMITTED, None
        self.written[joined.producer_id] = written
        return True, joined.producer_id

    def join(self, query: str, batch: int, run: UUID | None) -> JoinMicroBatch:
        return JoinMicroBatch(
            request=0,
            sink=SINK,
            query=query,
            batch=batch,
            timeout_ms=TIMEOUT_MS,
            now_ms=0,
            fresh_producer_id=0,
            owner=self.owner,
            run=run,
        )

    # --- what happens ---

    def happen(self) -> None:
        chance = self.random.random()
        if self.letters and chance < 0.6:
            letter = self.letters.pop(self.random.randrange(len(self.letters)))
            fate = self.random.random() if self.faulty else 1.0
            if fate < 0.05:
                return
            if fate < 0.15:
                self.letters.append(letter)
            letter()
        elif chance < 0.82:
            self.clients = [client for client in self.clients if not client.done]
            self.random.choice(self.clients).poke()
        elif chance < 0.95:
            self.replicate()
        elif chance < 0.975:
            for (_, tp), markers in list(self.unmarked.items()):
                self.mail_marker(markers, tp)
        elif self.faulty:
            self.fail()

    def fail(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self.elect()
        elif chance < 0.5:
            self.random.choice(list(self.out.values())).guards = VerificationGuards()
        elif chance < 0.6:
            query = self.random.choice(list(self.drivers))
            if self.random.random() < 0.5:
                self.drivers[query].done = True
            self.start_driver(query)
        else:
            self.now_ms += self.random.randrange(TIMEOUT_MS)
            self.step(CheckTimeouts(at=Moment(self.now_ms, self.now_ms)))
        if len(self.letters) > 200:
            del self.letters[:-100]

    def settle(self) -> None:
        """No more faults: the newest drivers commit two more batches each, and all ends."""
        self.faulty = False
        goal = self.goal()
        for _ in range(60_000):
            self.happen()
            if self.has_reached(goal):
                break
        else:
            raise Violation(f"no progress: {self.logged}, wanted {goal}")
        for _ in range(200):
            self.happen()
        # All drivers and tasks die at the same moment.
        self.clients = []
        self.letters = []
        for _ in range(4):
            self.now_ms += TIMEOUT_MS
            self.step(CheckTimeouts(at=Moment(self.now_ms, self.now_ms)))
            for _ in range(6):
                self.replicated = len(self.log)
                self.step(Replicated(number=self.replicated - self.base))
                for (_, tp), markers in list(self.unmarked.items()):
                    self.mail_marker(markers, tp)
                letters, self.letters = self.letters, []
                for letter in letters:
                    letter()
                letters, self.letters = self.letters, []
                for letter in letters:
                    letter()

    def goal(self) -> dict[str, int]:
        """Return the batch of each query that must be committed once the faults have stopped."""
        return {query: batch + 2 for query, batch in self.logged.items()}

    def has_reached(self, goal: dict[str, int]) -> bool:
        return all(self.logged[query] >= goal[query] for query in goal)

    # --- what must hold ---

    def check(self) -> None:
        committed = self.check_state_log()
        self.check_outputs(committed)
        for query, batch in self.logged.items():
            demand(
                all((query, each) in committed for each in self.batches_up_to(query, batch)),
                f"Spark has logged batch {batch} of {query}, the coordinator has not",
            )
        open_members = [key for key, record in self.live().items() if isinstance(key, MemberKey)]
        demand(not open_members, f"transactions that never end: {open_members}")

    def batches_up_to(self, query: str, batch: int) -> range:
        return range(batch + 1)

    def live(self) -> dict[StateKey, StateRecord]:
        content = dict(self.log)
        return {key: record for key, record in content.items() if record is not None}

    def check_state_log(self) -> dict[tuple[str, int], frozenset[int]]:
        """The winners of each batch, by the whole history of the log that survived."""
        committed: dict[tuple[str, int], frozenset[int]] = {}
        last: dict[str, int] = {}
        carried: dict[str, frozenset[int]] = {}
        runs: dict[str, tuple[UUID, ...]] = {}
        for key, record in self.log:
            if not isinstance(key, LedgerKey) or not isinstance(record, LedgerRecord):
                continue
            check_runs(runs.get(key.query, ()), record)
            runs[key.query] = record.runs
            before = last.get(key.query, -1)
            demand(record.last >= before, f"the ledger of {key.query} goes back")
            if record.last > before:
                last[key.query] = record.last
                won = frozenset(end.producer_id for end in record.ends if end.commits)
                won -= carried.get(key.query, frozenset())
                committed[key.query, record.last] = won
                asked = self.winners[key.query, record.last]
                demand(won in asked, f"{won} of {asked}: a part of a batch, or a mix")
                origin = record.origins.get(SOURCE)
                top = ROWS_PER_BATCH * (record.last + 1) - 1
                demand(
                    not self.keyed or (origin is not None and origin.offset == top),
                    f"the origins of batch {record.last} did not move with it",
                )
            carried[key.query] = frozenset(end.producer_id for end in record.ends)
        return committed

    def check_outputs(self, committed: dict[tuple[str, int], frozenset[int]]) -> None:
        winners = {each: batch for batch, members in committed.items() for each in members}
        copied: list[int] = []
        for tp, partition in self.out.items():
            rows: dict[int, list[Row]] = {}
            ended: dict[int, bool] = {}
            order: dict[str, int] = {}
            for producer_id, what in partition.entries:
                if isinstance(what, Row):
                    rows.setdefault(producer_id, []).append(what)
                    continue
                first = producer_id not in ended
                ended[producer_id] = what
                demand(
                    what == (producer_id in winners), f"{producer_id} ended the wrong way in {tp}"
                )
                if what and first and rows.get(producer_id):
                    query, batch = winners[producer_id]
                    demand(order.get(query, -1) <= batch, f"batch {batch} comes late in {tp}")
                    order[query] = batch
                    copied.extend(row.offset for row in rows[producer_id])
            for producer_id, of_producer in rows.items():
                demand(producer_id in ended, f"{producer_id} never ends in {tp}")
                if producer_id in winners:
                    wanted = [row for out, row in self.written[producer_id] if out == tp]
                    demand(of_producer == wanted, f"rows of winner {producer_id} are missing")
        for producer_id in winners:
            for tp, _ in self.written[producer_id]:
                entries = self.out[tp].entries
                demand((producer_id, True) in entries, f"{producer_id} is not committed in {tp}")
        self.check_rows(copied, committed)

    def check_rows(self, copied: list[int], committed: dict[tuple[str, int], Any]) -> None:
        """Each row of the source once: by each query, or with origins by all of them together."""
        batches = {batch for _, batch in committed if self.has_rows(batch)}
        demand(len(copied) == len(set(copied)), f"rows twice: {sorted(copied)}")
        demand(len(copied) == ROWS_PER_BATCH * len(batches), "rows are missing")
