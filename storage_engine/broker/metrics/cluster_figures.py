"""Reads the cluster as this broker knows it, its session with ZooKeeper, and the controller."""

from collections import Counter
from collections.abc import Callable, Iterator

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.core.control.controller import Controller
from storage_engine.core.ids import NO_LEADER
from storage_engine.core.ports import Clock, MetadataStore, SessionState

PARTITIONS_PER_STEP = 500

RUNNING = 3
"""Kafka's number of a broker's state."""

_CONTROLLER = "kafka_controller_kafkacontroller_"
_SESSION = "kafka_server_sessionexpirelistener_zookeeper"


class ClusterFigures:
    """Brokers and the session."""

    def __init__(
        self,
        metadata: MetadataCache,
        store: MetadataStore,
        clock: Clock,
        lease_end_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._lease_end_ms = lease_end_ms
        self._changes: Counter[SessionState] = Counter({SessionState.CONNECTED: 1})
        """Broker and session began before anybody could count."""
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
        left_ms = self._lease_end_ms() - self._clock.monotonic_ms()
        samples.add("headrace_zookeeper_session_left_seconds", max(0, left_ms) / 1000)
        yield


class ControllerFigures:
    """What a controller knows of all partitions; zeros where another broker is the controller."""

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
                if count % PARTITIONS_PER_STEP == 0:
                    yield
        _tell(samples, core)
        samples.add(f"{_CONTROLLER}activecontrollercount", int(acting is not None))
        samples.add(f"{_CONTROLLER}globalpartitioncount", count)
        samples.add(f"{_CONTROLLER}offlinepartitionscount", offline)
        samples.add(f"{_CONTROLLER}preferredreplicaimbalancecount", imbalanced)


def _tell(samples: Samples, core: Controller | None) -> None:
    """What needs no look at each partition."""
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
