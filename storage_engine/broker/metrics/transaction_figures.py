"""Reads the transactions of producers, and the micro-batches of sinks."""

from collections import Counter
from collections.abc import Iterator

from storage_engine.broker.coordinators.kinds import TransactionCoordinators
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.sink_names import NO_QUERY, is_once, part_and_number
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    NO_TIME,
    TransactionState,
)
from storage_engine.core.transactions.transactional_ids import TransactionalIds
from storage_engine.core.transactions.transactions import TransactionCoordinator

QUERIES_MAX = 500
"""Queries whose last batch a scrape tells."""

ENTRIES_PER_STEP = 500


class TransactionFigures:
    """The transactions that a broker coordinates."""

    def __init__(self, coordinators: TransactionCoordinators, clock: Clock) -> None:
        self._coordinators = coordinators
        self._clock = clock

    def read(self, samples: Samples) -> Iterator[None]:
        producers, sinks = _Producers(), _Sinks()
        for coordinator in list(self._coordinators):
            if isinstance(coordinator, TransactionCoordinator):
                yield from producers.add(coordinator.producers)
                yield from sinks.add(coordinator.batches)
        producers.tell(samples, self._clock.wall_ms())
        sinks.tell(samples)


class _Producers:
    def __init__(self) -> None:
        self._states: Counter[TransactionState] = Counter()
        self._oldest_ms: int | None = None

    def add(self, ids: TransactionalIds) -> Iterator[None]:
        for number, (_, record) in enumerate(list(ids), 1):
            self._states[record.state] += 1
            if record.state is TransactionState.ONGOING and record.start_ms != NO_TIME:
                known = self._oldest_ms
                self._oldest_ms = record.start_ms if known is None else min(known, record.start_ms)
            if number % ENTRIES_PER_STEP == 0:
                yield

    def tell(self, samples: Samples, now_ms: int) -> None:
        name = "kafka_server_transaction_coordinator_metrics_transactional_id_count"
        samples.add(name, sum(self._states.values()))
        for state in TransactionState:
            samples.add("headrace_transactions", self._states[state], state.name.lower())
        age_ms = 0 if self._oldest_ms is None else max(0, now_ms - self._oldest_ms)
        samples.add("headrace_transactions_oldest_open_seconds", age_ms / 1000)


class _Sinks:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._ending: Counter[str] = Counter()
        self._last: dict[tuple[str, str], int] = {}
        self._committed = 0

    def add(self, batches: MicroBatchCommits) -> Iterator[None]:
        self._committed += batches.committed
        waiting = set()
        for number, (_, member) in enumerate(list(batches.members()), 1):
            self._open[member.sink] += not member.aborting
            if not member.aborting:
                waiting.add((member.sink, member.query, member.batch))
            if number % ENTRIES_PER_STEP == 0:
                yield
        self._waiting.update(sink for sink, _, _ in waiting)
        for number, (key, record) in enumerate(list(batches.ledgers()), 1):
            self._ending[key.sink] += bool(record.ends)
            is_streaming = not (
                key.query == NO_QUERY or is_once(key.query) or part_and_number(key.query)
            )
            if is_streaming and record.last != NO_BATCH and len(self._last) < QUERIES_MAX:
                self._last[key.sink, key.query] = record.last
            if number % ENTRIES_PER_STEP == 0:
                yield

    def tell(self, samples: Samples) -> None:
        samples.add("headrace_sink_committed_batches_total", self._committed)
        sinks = sorted({*self._open, *self._waiting, *self._ending})
        for sink in sinks[:QUERIES_MAX]:
            samples.add("headrace_sink_open_members", self._open[sink], sink)
            samples.add("headrace_sink_batches_waiting", self._waiting[sink], sink)
            samples.add("headrace_sink_batches_ending", self._ending[sink], sink)
        for (sink, query), last in self._last.items():
            samples.add("headrace_sink_last_batch", last, sink, query)
