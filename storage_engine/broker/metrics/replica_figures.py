"""Reads a broker's state for a scrape: its replicas by topic and partition; the cluster, the
session with ZooKeeper and the controller; consumer groups and their lag; the transactions of
producers and the micro-batches of sinks.

The coordinator of a group reports the group's lag, in records only. It takes the end of a partition
from the replica here; a follower's replica is at most one fetch behind. For a partition without a
replica here it asks the leader (`end_offsets`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.coordinators.coordinators import (
    GroupCoordinators,
    TransactionCoordinators,
)
from storage_engine.broker.metrics.end_offsets import EndOffsets
from storage_engine.broker.metrics.exposition import Samples, escaped
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.control.controller import Controller
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.group import Group, GroupType
from storage_engine.core.ids import NO_LEADER, TopicPartition
from storage_engine.core.metrics import CODECS, TopicFigures
from storage_engine.core.ports import Clock, MetadataStore, SessionState
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

PARTITIONS_PER_STEP = 20
"""Partitions that are read between two yields: some 0.3 ms."""

PURGATORY_SIZE = "kafka_server_delayedoperationpurgatory_purgatorysize"
_TOPICS = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"

TOPIC_FIGURES: dict[str, Callable[[TopicFigures], int]] = {
    f"{_TOPICS}bytesin_total": lambda figures: sum(figures.bytes_in),
    f"{_TOPICS}bytesout_total": lambda figures: figures.bytes_out,
    f"{_TOPICS}messagesin_total": lambda figures: figures.records_in,
    f"{_TOPICS}totalproducerequests_total": lambda figures: (
        figures.produces + figures.failed_produces
    ),
    f"{_TOPICS}failedproducerequests_total": lambda figures: figures.failed_produces,
    f"{_TOPICS}totalfetchrequests_total": lambda figures: figures.fetches,
    f"{_TOPICS}failedfetchrequests_total": lambda figures: figures.failed_fetches,
}


class ReplicaFigures:
    """The replicas of a broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        fetchers: FetcherManager,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._fetchers = fetchers
        self._clock = clock

    def read(self, samples: Samples) -> Iterator[None]:
        yield from self._read_partitions(samples)
        yield from self._read_topics(samples)
        isr = self._replicas.isr
        samples.add(f"{_REPLICAS}isrshrinks_total", isr.shrinks)
        samples.add(f"{_REPLICAS}isrexpands_total", isr.expands)
        most_behind = self._fetchers.most_behind()
        samples.add("kafka_server_replicafetchermanager_maxlag", most_behind, "Replica")

    def _read_partitions(self, samples: Samples) -> Iterator[None]:
        sums = _Sums()
        lines = _PartitionLines(samples, self._clock.wall_ms())
        for number, partition in enumerate(list(self._replicas), 1):
            sums.add(partition)
            lines.add(partition)
            if number % PARTITIONS_PER_STEP == 0:
                yield
        for name, value in sums.counts.items():
            samples.add(f"{_REPLICAS}{name}", value)
        for operation, count in sums.waits.items():
            samples.add(PURGATORY_SIZE, count, operation)

    def _read_topics(self, samples: Samples) -> Iterator[None]:
        every, gone = self._replicas.figures.by_name, self._replicas.figures.gone
        adders = [(samples.adder(name), read) for name, read in TOPIC_FIGURES.items()]
        by_codec = list(gone.bytes_in)
        replicated_in, replicated_out = gone.replicated_in, gone.replicated_out
        for number, (topic, figures) in enumerate(sorted(every.items()), 1):
            label = f'{{topic="{topic}"}} '
            for add, read in adders:
                add(f"{label}{read(figures)}\n")
            by_codec = [a + b for a, b in zip(by_codec, figures.bytes_in, strict=True)]
            replicated_in += figures.replicated_in
            replicated_out += figures.replicated_out
            if number % PARTITIONS_PER_STEP == 0:
                yield
        for codec, size in zip(CODECS, by_codec, strict=False):
            samples.add("headrace_bytes_in_total", size, codec)
        samples.add(f"{_TOPICS}replicationbytesin_total", replicated_in)
        samples.add(f"{_TOPICS}replicationbytesout_total", replicated_out)


class _Sums:
    """The sums over all partitions."""

    def __init__(self) -> None:
        self.counts = {
            "partitioncount": 0,
            "leadercount": 0,
            "offlinereplicacount": 0,
            "underreplicatedpartitions": 0,
            "underminisrpartitioncount": 0,
            "atminisrpartitioncount": 0,
        }
        self.waits = {"Produce": 0, "DeleteRecords": 0}

    def add(self, partition: HostedPartition) -> None:
        counts, waits = self.counts, self.waits
        counts["partitioncount"] += 1
        counts["offlinereplicacount"] += partition.role is Role.FAILED
        if partition.leader is not None:
            in_sync, least = partition.in_sync_count, partition.min_in_sync_count
            counts["leadercount"] += 1
            counts["underreplicatedpartitions"] += in_sync < len(partition.assigned_replicas)
            counts["underminisrpartitioncount"] += in_sync < least
            counts["atminisrpartitioncount"] += in_sync == least
        waits["Produce"] += len(partition.produce_waiters)
        waits["DeleteRecords"] += len(partition.deletion_waiters)


class _PartitionLines:
    """Adds a line for each partition to each metric."""

    def __init__(self, samples: Samples, now_ms: int) -> None:
        self._now_ms = now_ms
        self._size = samples.adder("kafka_log_log_size")
        self._segments = samples.adder("kafka_log_log_numlogsegments")
        self._start = samples.adder("kafka_log_log_logstartoffset")
        self._end = samples.adder("kafka_log_log_logendoffset")
        cluster, topic = "kafka_cluster_partition_", "kafka_topic_partition_"
        self._replicas = [
            samples.adder(f"{cluster}replicascount"), samples.adder(f"{topic}replicas")
        ]  # fmt: skip
        self._in_sync = [
            samples.adder(f"{cluster}insyncreplicascount"),
            samples.adder(f"{topic}in_sync_replica"),
        ]
        self._under_replicated = [
            samples.adder(f"{cluster}underreplicated"),
            samples.adder(f"{topic}under_replicated_partition"),
        ]
        self._under_least = samples.adder(f"{cluster}underminisr")
        self._at_least = samples.adder(f"{cluster}atminisr")
        self._stable_lag = samples.adder(f"{cluster}laststableoffsetlag")
        self._current = samples.adder(f"{topic}current_offset")
        self._oldest = samples.adder(f"{topic}oldest_offset")
        self._preferred = samples.adder(f"{topic}leader_is_preferred")
        self._open_s = samples.adder("headrace_partition_open_transaction_seconds")

    def add(self, partition: HostedPartition) -> None:
        tp, log = partition.topic_partition, partition.log
        label = f'{{topic="{tp.topic}",partition="{tp.partition}"}} '
        self._size(f"{label}{log.size_in_bytes}\n")
        self._segments(f"{label}{log.segment_count}\n")
        self._start(f"{label}{log.log_start_offset}\n")
        self._end(f"{label}{log.log_end_offset}\n")
        if partition.leader is not None:
            self._add_leader(partition, label)

    def _add_leader(self, partition: HostedPartition, label: str) -> None:
        replicas, in_sync = partition.assigned_replicas, partition.in_sync_count
        least, high_watermark = partition.min_in_sync_count, partition.high_watermark
        stable_lag = high_watermark - partition.last_stable_offset
        for add in self._replicas:
            add(f"{label}{len(replicas)}\n")
        for add in self._in_sync:
            add(f"{label}{in_sync}\n")
        is_under = int(in_sync < len(replicas))
        for add in self._under_replicated:
            add(f"{label}{is_under}\n")
        self._under_least(f"{label}{int(in_sync < least)}\n")
        self._at_least(f"{label}{int(in_sync == least)}\n")
        self._stable_lag(f"{label}{stable_lag}\n")
        self._current(f"{label}{high_watermark}\n")
        self._oldest(f"{label}{partition.log.log_start_offset}\n")
        is_preferred = replicas[:1] == (partition.leader_id,)
        self._preferred(f"{label}{int(is_preferred)}\n")
        if stable_lag:
            begun_ms = partition.log.reads.time_of(partition.last_stable_offset)
            if begun_ms is not None:
                self._open_s(f"{label}{max(0, self._now_ms - begun_ms) / 1000}\n")


END_OFFSETS_PER_STEP = 500

RUNNING = 3
"""Kafka's number of the state RUNNING of a broker."""

_CONTROLLER = "kafka_controller_kafkacontroller_"
_SESSION = "kafka_server_sessionexpirelistener_zookeeper"


class SessionTimes(Protocol):
    """The broker's session in ZooKeeper, in ms of the monotonic clock."""

    @property
    def lease_end_monotonic_ms(self) -> int: ...

    @property
    def longest_silence_ms(self) -> int: ...


class ClusterFigures:
    """The brokers, and the session with ZooKeeper."""

    def __init__(
        self,
        metadata: MetadataCache,
        store: MetadataStore,
        clock: Clock,
        session: SessionTimes,
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._session = session
        self._changes: Counter[SessionState] = Counter({SessionState.CONNECTED: 1})
        """The changes of the session's state; it was connected before this listener was added."""
        store.add_state_listener(self._note_change)

    def _note_change(self, state: SessionState) -> None:
        self._changes[state] += 1

    def read(self, samples: Samples) -> Iterator[None]:
        samples.add("kafka_server_kafkaserver_brokerstate", RUNNING)
        brokers = self._metadata.brokers
        samples.add("kafka_brokers", len(brokers))
        for broker in brokers.values():
            address = f"{broker.host}:{broker.port}"
            samples.add("kafka_broker_info", 1, broker.broker_id, address)
        samples.add(f"{_SESSION}syncconnects_total", self._changes[SessionState.CONNECTED])
        samples.add(f"{_SESSION}disconnects_total", self._changes[SessionState.SUSPENDED])
        samples.add(f"{_SESSION}expires_total", self._changes[SessionState.LOST])
        left_ms = self._session.lease_end_monotonic_ms - self._clock.monotonic_ms()
        samples.add("headrace_zookeeper_session_left_seconds", max(0, left_ms) / 1000)
        silence_ms = self._session.longest_silence_ms
        samples.add("headrace_zookeeper_longest_silence_seconds", silence_ms / 1000)
        yield


class ControllerFigures:
    """The partitions as the controller has them; zeros where another broker is the controller."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    def read(self, samples: Samples) -> Iterator[None]:
        acting = self._controller.acting
        core = acting.core if acting is not None and acting.loaded else None
        offline = imbalanced = count = 0
        if core is not None:
            for count, partition in enumerate(list(core.known_partitions()), 1):
                state = partition.state
                offline += state is None or state.leader == NO_LEADER
                imbalanced += state is not None and partition.replicas[:1] != (state.leader,)
                if count % END_OFFSETS_PER_STEP == 0:
                    yield
        _tell(samples, core)
        samples.add(f"{_CONTROLLER}activecontrollercount", int(acting is not None))
        samples.add(f"{_CONTROLLER}globalpartitioncount", count)
        samples.add(f"{_CONTROLLER}offlinepartitionscount", offline)
        samples.add(f"{_CONTROLLER}preferredreplicaimbalancecount", imbalanced)


def _tell(samples: Samples, core: Controller | None) -> None:
    """Add the controller's metrics that need no loop over all partitions."""
    topics = [] if core is None else core.topic_sizes()
    samples.add(f"{_CONTROLLER}globaltopiccount", len(topics))
    add = samples.adder("kafka_topic_partitions")
    for topic, partitions in topics:
        add(f'{{topic="{topic}"}} {partitions}\n')
    elections = None if core is None else core.elections
    unclean = 0 if elections is None else elections.unclean_elections
    elected = 0 if elections is None else elections.leaders_elected
    samples.add("kafka_controller_controllerstats_uncleanleaderelections_total", unclean)
    samples.add("headrace_controller_leader_elections_total", elected)


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
