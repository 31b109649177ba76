"""Reads a broker's state for a scrape: its replicas by topic and partition; the cluster, the
session with ZooKeeper and the controller.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.control.controller import Controller
from storage_engine.core.ids import NO_LEADER
from storage_engine.core.metrics import CODECS, TopicFigures
from storage_engine.core.ports import Clock, MetadataStore, SessionState

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
