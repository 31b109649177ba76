"""The largest states that clients may leave in a broker, and the steps of work that each state
causes. They are built by the broker's own state machines. `headrace bench requests --state`
measures the steps, and a test counts the lines of code that they run."""

import gc
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, Protocol

from benchmarks.largest.groups import (
    GroupOffsets,
    Members,
    PromisedIds,
    Protocols,
    SilentMembers,
    Steps,
    Subscriptions,
    named,
)
from simulation.world.clock import SimulatedLoop
from storage_engine.broker.requests import fetch_sessions
from storage_engine.broker.requests.fetch_sessions import FetchSessions, SessionFetch
from storage_engine.core.coordinator_log import AppendRecord, Moment, Replicated, TickAgain
from storage_engine.core.errors import TooManyProducersError
from storage_engine.core.groups.classic import group, joins, offers
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained import producer_state
from storage_engine.core.retained.producer_state import IDLE_MS, ProducerStates, SequencedBatch
from storage_engine.core.transactions.transaction_events import (
    CheckTimeouts,
    CommitMicroBatch,
    Effect,
    JoinMicroBatch,
)
from storage_engine.core.transactions.transaction_state import (
    StateContent,
    TransactionalIdKey,
    TransactionRecord,
    TransactionState,
)
from storage_engine.core.transactions.transactions import EXPIRATION_MS, TransactionCoordinator
from storage_engine.log.state import producer_snapshots
from storage_engine.protocol.apis.fetch import FetchPartition, FetchPartitionResponse, FetchRequest


class Producers:
    """Producers of one log, each with a batch."""

    def __init__(self, count: int) -> None:
        self.states = ProducerStates()
        for number in range(count):
            self.write(number)

    def write(self, number: int) -> None:
        self.states.check(number, 0, 0, 0)
        self.states.record(number, 0, SequencedBatch(0, 0, number, number, 1), now_ms=0)

    def refusal(self) -> str | None:
        try:
            self.write(10**6)
        except TooManyProducersError as error:
            return error.code.name
        return None

    def left(self) -> int:
        return len(self.states)

    def steps(self) -> Steps:
        data = producer_snapshots.encode(self.states)
        yield "snapshot"
        self.states = producer_snapshots.decode(data)
        yield "read back"
        # The second half goes after the time that was set.
        for now_ms in (IDLE_MS, 2 * IDLE_MS):
            while self.states.expire(now_ms, 2 * IDLE_MS):
                yield "producers expire"


class TransactionalIds:
    """Transactional ids that nobody uses any more."""

    state = TransactionState.EMPTY
    timeout_ms = 1_000

    def __init__(self, count: int) -> None:
        self.count = count
        self.core = TransactionCoordinator()
        self.content: StateContent = {}
        self.fill()

    def fill(self) -> None:
        for number in range(self.count):
            self.content[TransactionalIdKey(f"id{number}")] = TransactionRecord(
                producer_id=number,
                producer_epoch=0,
                timeout_ms=self.timeout_ms,
                state=self.state,
                last_update_ms=0,
                start_ms=0,
                client_version=0,
                partitions=frozenset([TopicPartition("t", number % 100)]),
            )
        for _ in self.restored():
            pass

    def refusal(self) -> str | None:
        """Return None: only time bounds these ids."""
        return None

    def left(self) -> int:
        return sum(each.state is self.state for _, each in self.core.producers)

    def restored(self) -> Steps:
        self.core = TransactionCoordinator()
        yield from named("restored", self.core.restore(self.content, Moment(0, 0)))
        self.core.step(Replicated(number=0))
        yield ""

    def ticks(self, name: str, now_ms: int) -> Steps:
        effects: list[Effect] = [TickAgain()]
        while any(isinstance(each, TickAgain) for each in effects):
            effects = list(self.core.step(CheckTimeouts(at=Moment(now_ms, now_ms))))
            yield name

    def steps(self) -> Steps:
        yield from self.restored()
        yield from self.ticks("ids expire", EXPIRATION_MS)


class OpenTransactions(TransactionalIds):
    """Transactions that nobody ends."""

    state = TransactionState.ONGOING

    def steps(self) -> Steps:
        yield from self.restored()
        yield from self.ticks("transactions time out", self.timeout_ms)


class SinkMembers(TransactionalIds):
    """Attempts of tasks that nobody ends, each in a micro-batch of its own of one query."""

    def fill(self) -> None:
        self.core.step(Replicated(number=0))
        for number in range(self.count):
            self.join(number)

    def join(self, number: int) -> None:
        event = JoinMicroBatch(
            request=1, sink="s", query="q", batch=number, timeout_ms=self.timeout_ms, now_ms=0,
            fresh_producer_id=number,
        )  # fmt: skip
        for each in self.core.step(event):
            if isinstance(each, AppendRecord):
                key, record = each.entry
                assert record is not None
                self.content[key] = record
                self.core.step(Replicated(number=each.number))

    def left(self) -> int:
        return sum(not each.aborting for _, each in self.core.batches.members())

    def steps(self) -> Steps:
        yield from self.restored()
        event = CommitMicroBatch(
            request=1, sink="s", query="q", batch=0, members=frozenset([(0, 0)]), drained=0,
            now_ms=0,
        )  # fmt: skip
        self.core.step(event)
        yield "CommitMicroBatch"
        yield from self.ticks("members time out", self.timeout_ms)


class Sessions:
    """The most sessions, of two clients, that there may be, with the most partitions that a broker
    remembers."""

    def __init__(self, count: int) -> None:
        self.count = count
        slots = max(2, count // 200)
        self.sessions = FetchSessions(slots, SimulatedLoop(), partitions_max=count)
        for number in range(slots):
            for _ in self.fetch(200, f"User:{number % 2}"):
                pass

    def fetch(self, size: int, owner: str, session_id: int = 0, epoch: int = 0) -> Steps:
        """Send a fetch, which names all partitions if it has no session."""
        parts = [FetchPartition("t", number, 0, 1) for number in range(0 if session_id else size)]
        answers = [FetchPartitionResponse("t", each, 0, 0, 0, 0) for each in range(size)]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1, partitions=parts, replica_id=-1,
            session_id=session_id, session_epoch=epoch, forgotten=(),
        )  # fmt: skip
        yield ""
        begun = self.sessions.begin(request, (owner, "10.0.0.1"))
        assert isinstance(begun, SessionFetch)
        yield "request of a large session"
        self.session_id = begun.response(answers).session_id
        yield "answer of a large session" if session_id else "a large session begins"

    def refusal(self) -> str | None:
        """Return "no session" if a client with as many sessions as others gets no more."""
        for _ in self.fetch(200, "User:0"):
            pass
        return None if self.session_id else "no session"

    def left(self) -> int:
        return max(0, self.sessions.remembered - self.count)

    def steps(self) -> Steps:
        size = min(self.count // 10, fetch_sessions.SESSION_PARTITIONS_MAX)
        yield from self.fetch(size, "User:new")
        assert self.session_id
        yield from self.fetch(size, "User:new", self.session_id, 1)


class State(Protocol):
    """A state that clients have left in a broker."""

    def __init__(self, count: int) -> None: ...

    def refusal(self) -> str | None:
        """Return the error for one entry more; None if it is accepted."""
        ...

    def left(self) -> int:
        """Return the number of entries that are left."""
        ...

    def steps(self) -> Steps:
        """Do the work that the state causes, until its end."""
        ...


class Largest(NamedTuple):
    """A row of the table."""

    state: type[State]
    name: str
    entries: int
    """The number of entries at the bound."""
    bound: tuple[ModuleType, str] | None = None
    """The module and name of the constant that is the bound; None: a parameter or time is it."""


LARGEST = (
    Largest(Members, "members of a group", 10_000),
    Largest(SilentMembers, "members that are late at once", 10_000),
    Largest(Protocols, "lists of protocols", offers.LISTS_MAX, (offers, "LISTS_MAX")),
    Largest(PromisedIds, "promised member ids", joins.PROMISED_MAX, (joins, "PROMISED_MAX")),
    Largest(
        Subscriptions, "subscribed topics",
        group.SUBSCRIBED_MAX_TOPICS, (group, "SUBSCRIBED_MAX_TOPICS"),
    ),
    Largest(GroupOffsets, "offsets of a group", 100_000),
    Largest(
        Producers, "producer ids of a log",
        producer_state.PRODUCERS_MAX, (producer_state, "PRODUCERS_MAX"),
    ),
    Largest(TransactionalIds, "transactional ids", 100_000),
    Largest(OpenTransactions, "open transactions", 100_000),
    Largest(SinkMembers, "members of sinks", 100_000),
    Largest(
        Sessions, "partitions of fetch sessions", fetch_sessions.REMEMBERED_PARTITIONS_MAX,
    ),
)  # fmt: skip


def costs_of_steps(steps: Steps, spent: Callable[[], float]) -> dict[str, float]:
    """Return, by the steps' names, the most that one step cost, of what `spent` counts."""
    most: dict[str, float] = {}
    before = spent()
    for name in steps:
        cost = spent() - before
        most[name] = max(cost, most.get(name, 0))
        before = spent()
    most.pop("", None)
    return most


def built(row: Largest, count: int) -> tuple[State, int]:
    """Return the state, and the bytes that it takes."""
    gc.collect()
    tracemalloc.start()
    try:
        state = row.state(count)
        return state, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
