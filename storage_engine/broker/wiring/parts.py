"""Builds the parts of a broker from its ports and settings, in the order in which they need each
other: settings, cluster (registration, metadata, controller), replicas (logs, roles, fetches from
leaders), requests (reads, waits, fetch sessions, work in turns).
"""

from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.cluster.broker_places import BrokerPlaces
from storage_engine.broker.cluster.cluster_features import ClusterFeatures
from storage_engine.broker.cluster.cordon import Cordon
from storage_engine.broker.cluster.dead_sessions import DeadSessions, RefusedPorts
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts, LeaderProbes
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.cluster.registration import Registration
from storage_engine.broker.cluster.topic_admin import TopicAdmin
from storage_engine.broker.cluster.topic_lookup import TopicLookup
from storage_engine.broker.controller.acting_controller import ControllerSettings
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.quotas.new_producers import NewProducers
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.followed_partition import ReplicationThrottle
from storage_engine.broker.replicas.log_starts import LogStarts
from storage_engine.broker.replicas.producer_appends import ProducerAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager, ReplicaSettings
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.current_leaders import CurrentLeaders
from storage_engine.broker.requests.fetch_reads import PartitionReader
from storage_engine.broker.requests.fetch_sessions import FetchSessions
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.follower_sessions import session_maker
from storage_engine.broker.requests.foreign_answers import ForeignAnswers
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.broker.requests.rack_reads import RackReads
from storage_engine.broker.schemas.topic_schema_ids import TopicSchemaIds
from storage_engine.broker.schemas.writers import Writers
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.config_store import ConfigStore
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.group_config import GroupConfigs
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.broker.upkeep.scrubs import Scrubs
from storage_engine.core.control.cluster_state import ONLY_LISTENER
from storage_engine.core.features import SUPPORTED
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import (
    Background,
    Clock,
    Endpoint,
    ForeignSessions,
    MetadataStore,
    PeerPorts,
    Processes,
    Scheduler,
)
from storage_engine.core.replication.partition import LagLimits
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.settings import (
    BY_PORT,
    DEATH_PROOF,
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_RATE,
    NO_PROOF,
    RACK_AWARE_SELECTORS,
    REPLICA_SELECTOR,
)
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.protocol.transport import Transport
from storage_engine.zookeeper.znodes.cluster_znodes import NO_PORT, BrokerIdZNode


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The settings, the logs and the outside world of one broker."""

    config: BrokerConfig
    cluster_id: str
    logs: LogManager
    metadata_store: MetadataStore
    transport: Transport
    scheduler: Scheduler
    clock: Clock
    background: Background
    work_ns: Callable[[], int]
    """A clock in nanoseconds, which bounds the work of one turn of the event loop."""
    lease_valid: Callable[[], bool]
    """Whether the session with ZooKeeper is surely alive, by this broker's clock."""
    processes: Processes
    foreign_sessions: ForeignSessions
    peer_ports: PeerPorts

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(self.config.broker_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """The broker's place in the cluster."""

    metadata: MetadataCache
    doubts: LeaderDoubts
    probes: LeaderProbes
    registration: Registration
    cordon: Cordon
    places: BrokerPlaces
    dead_sessions: DeadSessions | None
    """None where the broker never ends the sessions of dead brokers."""
    order_gate: OrderGate
    controller: ControllerRunner
    topic_admin: TopicAdmin
    topic_lookup: TopicLookup
    producer_ids: ProducerIds
    features: ClusterFeatures


def build_cluster(ports: BrokerPorts, config: DynamicConfig) -> ClusterParts:
    """Build registration, controller and metadata."""
    metadata = MetadataCache(ports.config.listeners.inter_broker.name)
    registration = _registration(ports)
    places = BrokerPlaces(ports.metadata_store, ports.scheduler)
    order_gate = OrderGate(ports.metadata_store, lambda: registration.broker_epoch)
    doubts = LeaderDoubts(metadata, ports.clock)
    features = ClusterFeatures(ports.metadata_store, ports.scheduler)
    controller = _controller(ports, config, order_gate, features)
    features.on_change(controller.features_changed)
    return ClusterParts(
        metadata=metadata,
        doubts=doubts,
        probes=LeaderProbes(
            ports.broker_id,
            metadata=metadata,
            doubts=doubts,
            transport=ports.transport,
            scheduler=ports.scheduler,
        ),
        registration=registration,
        cordon=Cordon(config, log_dirs=ports.logs.dirs, registration=registration),
        places=places,
        dead_sessions=_dead_sessions(ports, metadata, doubts),
        order_gate=order_gate,
        controller=controller,
        topic_admin=TopicAdmin(
            config,
            metadata_store=ports.metadata_store,
            scheduler=ports.scheduler,
            metadata=metadata,
            places=places,
        ),
        topic_lookup=TopicLookup(ports.metadata_store, ports.cluster_id),
        producer_ids=ProducerIds(ports.metadata_store, broker_id=ports.broker_id),
        features=features,
    )


def _registration(ports: BrokerPorts) -> Registration:
    advertised = ports.config.listeners.advertised
    # As in Kafka, the address of earlier times is that of a listener without security.
    plain = [each for each in advertised if each.protocol is SecurityProtocol.PLAINTEXT]
    is_only_plain = [listener.name for listener in advertised] == [ONLY_LISTENER] and plain
    return Registration(
        BrokerIdZNode(
            broker_id=ports.broker_id,
            host=plain[0].host if plain else None,
            port=plain[0].port if plain else NO_PORT,
            rack=ports.config.rack,
            machine=ports.config.machine,
            endpoints=tuple(map(str, advertised)),
            protocols={}
            if is_only_plain
            else {listener.name: listener.protocol.name for listener in advertised},
            tail_lost_epoch=ports.logs.dirs.tail_lost_epoch,
            supported=SUPPORTED,
        ),
        metadata_store=ports.metadata_store,
        scheduler=ports.scheduler,
        clock=ports.clock,
        session_timeout_ms=ports.config.integer("zookeeper.session.timeout.ms"),
    )


def _dead_sessions(
    ports: BrokerPorts, metadata: MetadataCache, doubts: LeaderDoubts
) -> DeadSessions | None:
    proof = ports.config.text(DEATH_PROOF)
    if proof == NO_PROOF:
        return None
    return DeadSessions(
        ports.broker_id,
        metadata_store=ports.metadata_store,
        scheduler=ports.scheduler,
        processes=ports.processes,
        foreign_sessions=ports.foreign_sessions,
        controller_id=lambda: metadata.controller_id,
        refused_ports=RefusedPorts(
            ports.peer_ports, ports.scheduler, lambda: _others(ports.broker_id, metadata)
        )
        if proof == BY_PORT
        else None,
        on_ended=doubts.lost,
    )


def _others(own: BrokerId, metadata: MetadataCache) -> list[Endpoint]:
    return [
        Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)
        for broker in metadata.brokers.values()
        if broker.broker_id != own
    ]


def _controller(
    ports: BrokerPorts, config: DynamicConfig, order_gate: OrderGate, features: ClusterFeatures
) -> ControllerRunner:
    static = ports.config
    return ControllerRunner(
        ControllerSettings(
            broker_id=ports.broker_id,
            delete_topic_enable=static.flag("delete.topic.enable"),
            unclean_default=lambda: config.flag("unclean.leader.election.enable"),
            balance_check_ms=static.integer("leader.imbalance.check.interval.seconds") * 1000
            if static.flag("auto.leader.rebalance.enable")
            else None,
            inter_broker_listener=static.listeners.inter_broker.name,
            finalized=lambda: features.finalized,
            balance_percentage=static.integer("leader.imbalance.per.broker.percentage"),
        ),
        metadata_store=ports.metadata_store,
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
        known_epoch=lambda: order_gate.controller_epoch,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsParts:
    """The current settings, and the quotas."""

    config: DynamicConfig
    store: ConfigStore
    topics: TopicConfigs
    groups: GroupConfigs
    clients: ClientUsage
    """The quotas of clients, with their usage."""


def build_settings(ports: BrokerPorts) -> SettingsParts:
    """Build the settings of the broker, of topics and of groups."""
    config = DynamicConfig(ports.config)
    store = ConfigStore(ports.metadata_store)
    return SettingsParts(
        config=config,
        store=store,
        topics=TopicConfigs(config, store=store, scheduler=ports.scheduler),
        groups=GroupConfigs(config),
        clients=ClientUsage(ports.clock),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaParts:
    """The replicas, and the parts that work on them."""

    manager: ReplicaManager
    log_starts: LogStarts
    throttle: ReplicationThrottle
    fetchers: FetcherManager
    producer_appends: ProducerAppends
    new_producers: NewProducers
    moves: ReplicaMoves


def build_replicas(
    ports: BrokerPorts, settings: SettingsParts, cluster: ClusterParts, writers: Writers
) -> ReplicaParts:
    """Build the replicas with their fetchers."""
    config = settings.config
    log_starts = LogStarts(ports.logs, ports.scheduler)
    throttle = ReplicationThrottle(
        ports.broker_id,
        clock=ports.clock,
        leader_rate=lambda: config.integer(LEADER_THROTTLED_RATE),
        follower_rate=lambda: config.integer(FOLLOWER_THROTTLED_RATE),
    )
    fetcher_ports = FetcherPorts(
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
        broker_epoch=lambda: cluster.registration.fetch_epoch,
        keep_log_starts=log_starts.keep_now,
        throttle=throttle,
        doubts=cluster.doubts,
    )
    fetchers = FetcherManager(_fetcher_settings(ports), fetcher_ports)
    manager = _manager(ports, settings, fetchers)
    new_producers = NewProducers(lambda: (each.log.producer_state for each in manager), ports.clock)
    return ReplicaParts(
        manager=manager,
        log_starts=log_starts,
        throttle=throttle,
        fetchers=fetchers,
        producer_appends=ProducerAppends(manager, ports.background, new_producers, writers),
        new_producers=new_producers,
        moves=ReplicaMoves(
            logs=ports.logs,
            replicas=manager,
            scheduler=ports.scheduler,
            background=ports.background,
            bytes_per_second=lambda: config.integer(MOVES_RATE),
        ),
    )


def _manager(
    ports: BrokerPorts, settings: SettingsParts, fetchers: FetcherManager
) -> ReplicaManager:
    config = ports.config
    lag_max_ms = config.integer("replica.lag.time.max.ms")
    return ReplicaManager(
        ReplicaSettings(
            broker_id=ports.broker_id,
            lag=LagLimits(
                lag_max_ms=lag_max_ms,
                lag_max_messages=config.optional_integer("replica.lag.max.messages"),
            ),
            checkpoint_interval_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
            isr_check_interval_ms=max(1, lag_max_ms // 2),
        ),
        logs=ports.logs,
        metadata_store=ports.metadata_store,
        scheduler=ports.scheduler,
        clock=ports.clock,
        background=ports.background,
        fetchers=fetchers,
        topic_config=settings.topics.of,
        lease_valid=ports.lease_valid,
    )


def _fetcher_settings(ports: BrokerPorts) -> FetcherSettings:
    config = ports.config
    return FetcherSettings(
        broker_id=ports.broker_id,
        max_bytes=config.integer("replica.fetch.max.bytes"),
        response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        min_bytes=config.integer("replica.fetch.min.bytes"),
        wait_max_ms=config.replica_fetch_wait_max_ms,
        backoff_ms=config.integer("replica.fetch.backoff.ms"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """The parts for reads, waits and long work of requests."""

    reader: PartitionReader
    cold_reads: ColdReads
    foreign_answers: ForeignAnswers
    fetch_sessions: FetchSessions
    fetch_waits: FetchWaits
    long_work: LongWork
    leaders: CurrentLeaders


def build_requests(
    ports: BrokerPorts,
    *,
    replicas: ReplicaParts,
    cluster: ClusterParts,
    scrubs: Scrubs,
    schema_ids: TopicSchemaIds,
) -> RequestParts:
    """Build the reads of the replicas."""
    manager, metadata = replicas.manager, cluster.metadata
    is_rack_aware = ports.config.get(REPLICA_SELECTOR) in RACK_AWARE_SELECTORS
    reader = PartitionReader(
        manager,
        is_current=metadata.is_current,
        on_damage=scrubs.report,
        clock=ports.clock,
        throttle=replicas.throttle,
        rack_reads=_rack_reads(ports, replicas, metadata) if is_rack_aware else None,
    )
    cold_reads = ColdReads(ports.background, reader=reader, replicas=manager)
    return RequestParts(
        reader=reader,
        cold_reads=cold_reads,
        foreign_answers=ForeignAnswers(
            ports.background,
            reader=reader,
            replicas=manager,
            cold_reads=cold_reads,
            schema_ids=schema_ids,
        ),
        fetch_sessions=FetchSessions(
            ports.config.integer("max.incremental.fetch.session.cache.slots"),
            ports.clock,
            make=session_maker(manager.get),
        ),
        fetch_waits=FetchWaits(
            reader,
            replicas=manager,
            scheduler=ports.scheduler,
            lag_max_ms=ports.config.integer("replica.lag.time.max.ms"),
        ),
        long_work=LongWork(ports.scheduler, ports.background, ports.work_ns),
        leaders=CurrentLeaders(
            broker_id=ports.broker_id, metadata=metadata, replicas=manager, doubts=cluster.doubts
        ),
    )


def _rack_reads(ports: BrokerPorts, replicas: ReplicaParts, metadata: MetadataCache) -> RackReads:
    manager = replicas.manager
    return RackReads(
        broker_id=ports.broker_id,
        rack=ports.config.rack,
        metadata=metadata,
        clock=ports.clock,
        lag_max_ms=ports.config.integer("replica.lag.time.max.ms"),
        has_lease=lambda: manager.lease.is_held,
        leader_heard_ms=replicas.fetchers.heard_ms,
    )
