"""Reads what a broker coordinates for a scrape: consumer groups and their lag; the transactions of
producers and the micro-batches of sinks.

The coordinator of a group reports the group's lag, in records only. It takes the end of a partition
from the replica here; a follower's replica is at most one fetch behind. For a partition without a
replica here it asks the leader (`end_offsets`).
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from storage_engine.broker.coordinators.coordinators import (
    GroupCoordinators,
    TransactionCoordinators,
)
from storage_engine.broker.metrics.end_offsets import EndOffsets
from storage_engine.broker.metrics.exposition import Samples, escaped
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.group import Group, GroupType
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    NO_QUERY,
    NO_TIME,
    TransactionState,
    is_once,
    part_and_number,
)
from storage_engine.core.transactions.transactional_ids import TransactionalIds
from storage_engine.core.transactions.transactions import TransactionCoordinator

OFFSETS_PER_STEP = 50
"""Committed offsets that are read between two yields."""

OFFSETS_MAX = 10_000
"""The most offsets of a scrape; beyond it groups are only counted. 10,000 take 3 MB."""

GROUPS_MAX = 5_000
"""The most groups that a scrape reports one by one: their names come from clients."""

GROUPS_PER_STEP = 200
"""Groups between two yields: some 0.5 ms."""

_STATES = {
    GroupState.EMPTY: "empty",
    GroupState.PREPARING: "preparingrebalance",
    GroupState.COMPLETING: "completingrebalance",
    GroupState.STABLE: "stable",
}
_GROUP_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_Place = tuple[TopicPartition, int]


class GroupFigures:
    """The groups that a broker coordinates."""

    def __init__(
        self,
        coordinators: GroupCoordinators,
        replicas: ReplicaManager,
        ends: EndOffsets,
        clock: Clock,
    ) -> None:
        self._ends = ends
        self._coordinators = coordinators
        self._replicas = replicas
        self._clock = clock
        self._times: dict[_Place, int | None] = {}
        """The times of the records at the groups' positions in the last scrape: a group that has
        not moved costs no read."""

    def read(self, samples: Samples) -> Iterator[None]:
        states: Counter[GroupState] = Counter()
        consumer_states: Counter[ConsumerGroupState] = Counter()
        rebalances = 0
        times: dict[_Place, int | None] = {}
        now_ms, left, count = self._clock.wall_ms(), OFFSETS_MAX, 0
        for coordinator in list(self._coordinators):
            if not isinstance(coordinator, GroupCoordinator):
                # The coordinator is loading: its groups are not known yet.
                continue
            rebalances += coordinator.consumer_rebalances
            for group in list(coordinator.groups.values()):
                if isinstance(group, ClassicGroup):
                    states[group.state] += 1
                elif isinstance(group, ConsumerGroup):
                    consumer_states[group.state] += 1
                count += 1
                if count % GROUPS_PER_STEP == 0:
                    yield
                if count > GROUPS_MAX:
                    continue
                samples.add("kafka_consumergroup_members", group.size, group.group_id)
                for done in self._read_offsets(samples, group, times, now_ms, left):
                    left -= done
                    yield
        self._times = times
        self._ends.ask()
        samples.add(_GROUPS, count)
        samples.add(f"{_GROUPS}dead", 0)
        for state, name in _STATES.items():
            samples.add(f"{_GROUPS}{name}", states[state])
        name = f"{_GROUP_COORDINATOR}group_count"
        samples.add(name, states.total(), GroupType.CLASSIC.value)
        samples.add(name, consumer_states.total(), GroupType.CONSUMER.value)
        for each in ConsumerGroupState:
            name = f"{_GROUP_COORDINATOR}consumer_group_count"
            samples.add(name, consumer_states[each], each.value.lower())
        samples.add(f"{_GROUP_COORDINATOR}consumer_group_rebalance_count_total", rebalances)

    def _read_offsets(
        self,
        samples: Samples,
        group: Group,
        times: dict[_Place, int | None],
        now_ms: int,
        most: int,
    ) -> Iterator[int]:
        """Yield the number of offsets read since the last yield."""
        add_offset = samples.adder("kafka_consumergroup_current_offset")
        add_lag = samples.adder("kafka_consumergroup_lag")
        add_seconds = samples.adder("kafka_consumergroup_lag_seconds")
        name = escaped(group.group_id)
        committed = iter(group.offsets.committed.items())
        while some := list(islice(committed, min(OFFSETS_PER_STEP, most))):
            for tp, record in some:
                label = f'{{consumergroup="{name}",topic="{tp.topic}",partition="{tp.partition}"}} '
                add_offset(f"{label}{record.offset}\n")
                partition = self._replicas.get(tp)
                end = self._ends.of(tp) if partition is None else partition.high_watermark
                if end is None:
                    continue
                lag = max(0, end - record.offset)
                add_lag(f"{label}{lag}\n")
                if not lag:
                    add_seconds(f"{label}0\n")
                if not lag or partition is None:
                    continue
                place = tp, record.offset
                time_ms = self._times[place] if place in self._times else _time_of(partition, place)
                times[place] = time_ms
                if time_ms is not None:
                    add_seconds(f"{label}{max(0, now_ms - time_ms) / 1000}\n")
            most -= len(some)
            yield len(some)


def _time_of(partition: HostedPartition, place: _Place) -> int | None:
    """The time of the first record that the group has not read."""
    _, offset = place
    return partition.log.reads.time_of(max(offset, partition.log.log_start_offset))


QUERIES_MAX = 500
"""The most queries whose last batch a scrape reports."""

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
