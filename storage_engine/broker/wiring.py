"""Joins the parts of one broker over given ports; the same for a real and a simulated one."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from storage_engine.broker.cluster.full_order import NamedReplicas
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.cluster.orders import Orders
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.cluster.registration import BrokerIdInUseError, Registration
from storage_engine.broker.cluster.topic_admin import TopicAdmin
from storage_engine.broker.cluster.topic_lookup import TopicLookup
from storage_engine.broker.controller.acting_controller import ControllerSettings
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.coordinators.coordinators import Coordinators
from storage_engine.broker.coordinators.load_troubles import LoadTroubles
from storage_engine.broker.coordinators.runner import RunnerPorts
from storage_engine.broker.coordinators.state_topic import StateTopic, StateTopicPlan
from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.groups import coordinator_kind as groups
from storage_engine.broker.groups.deleted_topics import TopicPorts
from storage_engine.broker.handlers.context import BrokerContext
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.log_starts import LogStarts
from storage_engine.broker.replicas.prepared_appends import PreparedAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager, ReplicaSettings
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.replicas.replication_throttle import ReplicationThrottle
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.delayed_fetch import FollowerWaits, WaitingPartitions
from storage_engine.broker.requests.fetch_reads import FetchReader, leaving
from storage_engine.broker.requests.fetch_sessions import FetchSessions
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.broker.requests.rack_reads import RackReads
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import ConfigStore
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.topic_configs import TopicConfigs
from storage_engine.broker.settings_applier import SettingsApplier
from storage_engine.broker.transactions import coordinator_kind as transactions
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.broker.transactions.transactional_appends import TransactionalAppends
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.broker.upkeep.compactions import Compactions
from storage_engine.broker.upkeep.log_maintenance import LogMaintenance, MaintenanceIntervals
from storage_engine.broker.upkeep.scrubs import Scrubs, ScrubSettings
from storage_engine.broker.upkeep.strays import Strays
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import Background, Clock, MetadataStore, Scheduler, Transport
from storage_engine.core.replication.partition import LagLimits
from storage_engine.core.settings.settings import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_RATE,
    RACK_AWARE_SELECTORS,
    REPLICA_SELECTOR,
)
from storage_engine.log.deletion_policy import KEY as DELETION_POLICY_KEY
from storage_engine.log.deletion_policy import load_policy
from storage_engine.log.folders.log_manager import LogManager
from storage_engine.zookeeper.znodes import BrokerIdZNode

FINISHED_SEGMENTS_MS = 1000
"""How soon a finished segment is flushed, whatever flush.ms says: recovery then skips it."""


@dataclass(slots=True, kw_only=True)
class BrokerParts:
    """A broker that is built but not yet known to the cluster."""

    context: BrokerContext
    dispatcher: Dispatcher
    registration: Registration
    fetchers: FetcherManager
    maintenance: LogMaintenance
    config_changes: ConfigChanges
    on_refused: list[Callable[[BrokerIdInUseError], None]]

    def join_cluster(self, on_refused: Callable[[BrokerIdInUseError], None]) -> None:
        """Register and stand for controller. `on_refused`: the id belongs to another live
        broker."""
        self.on_refused.append(on_refused)
        self.context.replicas.start()
        self.maintenance.start()
        self.context.replica_moves.start()
        self.context.coordinators.start()
        self.context.group_coordinators.start()
        # What is set for this broker counts before it is told what to lead.
        self.config_changes.start(self.registration.start)

    def close(self) -> None:
        """Stop following and leading; answer who waits."""
        self.registration.close()
        self.config_changes.close()
        self.context.controller.close()
        self.maintenance.close()
        self.context.replica_moves.close()
        self.fetchers.close()
        self.context.coordinators.close()
        self.context.group_coordinators.close()
        self.context.replicas.close()


def build(
    config: BrokerConfig,
    *,
    cluster_id: str,
    logs: LogManager,
    metadata_store: MetadataStore,
    transport: Transport,
    scheduler: Scheduler,
    clock: Clock,
    background: Background,
    work_ns: Callable[[], int],
    lease_valid: Callable[[], bool],
) -> BrokerParts:
    """Build all parts; nothing runs yet."""
    broker_id = BrokerId(config.broker_id)
    metadata = MetadataCache()
    dynamic = DynamicConfig(config)
    config_store = ConfigStore(metadata_store)
    topic_configs = TopicConfigs(dynamic, store=config_store, scheduler=scheduler)
    log_starts = LogStarts(logs, scheduler)
    throttle = ReplicationThrottle(
        broker_id,
        clock=clock,
        leader_rate=lambda: dynamic.integer(LEADER_THROTTLED_RATE),
        follower_rate=lambda: dynamic.integer(FOLLOWER_THROTTLED_RATE),
    )
    fetchers = FetcherManager(
        FetcherSettings(
            broker_id=broker_id,
            max_bytes=config.integer("replica.fetch.max.bytes"),
            response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
            min_bytes=config.integer("replica.fetch.min.bytes"),
            wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
            backoff_ms=config.integer("replica.fetch.backoff.ms"),
        ),
        FetcherPorts(
            transport=transport,
            scheduler=scheduler,
            clock=clock,
            broker_epoch=lambda: (
                leaving(registration.broker_epoch) if context.leaving else registration.broker_epoch
            ),
            keep_log_starts=log_starts.keep_now,
            throttle=throttle,
        ),
    )
    replicas = ReplicaManager(
        ReplicaSettings(
            broker_id=broker_id,
            lag=LagLimits(
                lag_max_ms=config.integer("replica.lag.time.max.ms"),
                lag_max_messages=config.optional_integer("replica.lag.max.messages"),
            ),
            checkpoint_interval_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
            isr_check_interval_ms=max(1, config.integer("replica.lag.time.max.ms") // 2),
        ),
        logs=logs,
        metadata_store=metadata_store,
        scheduler=scheduler,
        clock=clock,
        background=background,
        fetchers=fetchers,
        topic_config=topic_configs.of,
        lease_valid=lease_valid,
    )
    order_gate = OrderGate(metadata_store, lambda: registration.broker_epoch)
    controller = ControllerRunner(
        ControllerSettings(
            broker_id=broker_id,
            delete_topic_enable=config.flag("delete.topic.enable"),
            unclean_default=lambda: dynamic.flag("unclean.leader.election.enable"),
            balance_check_ms=config.integer("leader.imbalance.check.interval.seconds") * 1000
            if config.flag("auto.leader.rebalance.enable")
            else None,
            balance_percentage=config.integer("leader.imbalance.per.broker.percentage"),
        ),
        metadata_store=metadata_store,
        transport=transport,
        scheduler=scheduler,
        clock=clock,
        known_epoch=lambda: order_gate.controller_epoch,
    )
    refusals: list[Callable[[BrokerIdInUseError], None]] = []

    def on_refused(failure: BrokerIdInUseError) -> None:
        for listener in refusals:
            listener(failure)

    def on_registered(epoch: BrokerEpoch) -> None:
        logs.keep_tail_lost_epoch(epoch)
        controller.start()

    advertised = config.advertised_listener
    registration = Registration(
        BrokerIdZNode(
            broker_id=broker_id,
            host=advertised.host,
            port=advertised.port,
            rack=config.rack,
            endpoints=(str(advertised),),
            tail_lost_epoch=logs.tail_lost_epoch,
        ),
        metadata_store=metadata_store,
        scheduler=scheduler,
        clock=clock,
        session_timeout_ms=config.integer("zookeeper.session.timeout.ms"),
        on_registered=on_registered,
        on_refused=on_refused,
        on_lost=replicas.lease.fence,
    )
    compactions = (
        Compactions(
            interval_ms=config.integer("log.cleaner.backoff.ms"),
            keys_max_bytes=config.integer("log.cleaner.dedupe.buffer.size"),
            replicas=replicas,
            scheduler=scheduler,
            clock=clock,
            background=background,
        )
        if config.flag("log.cleaner.enable")
        else None
    )
    scrubs = Scrubs(
        ScrubSettings(
            broker_id=broker_id,
            interval_ms=config.integer("log.scrub.interval.ms"),
            bytes_per_second=config.integer("log.scrub.bytes.per.second"),
        ),
        replicas=replicas,
        metadata=metadata,
        transport=transport,
        scheduler=scheduler,
        clock=clock,
        background=background,
        is_compacting=lambda: compactions is not None and compactions.is_running,
    )
    maintenance = LogMaintenance(
        MaintenanceIntervals(
            retention_ms=config.integer("log.retention.check.interval.ms"),
            flush_ms=min(config.integer("log.flush.scheduler.interval.ms"), FINISHED_SEGMENTS_MS),
            checkpoint_ms=config.integer("log.flush.offset.checkpoint.interval.ms"),
        ),
        logs=logs,
        replicas=replicas,
        scheduler=scheduler,
        clock=clock,
        background=background,
        deletion_policy=load_policy(config.text(DELETION_POLICY_KEY)),
        compactions=compactions,
        scrubs=scrubs,
    )
    applier = SettingsApplier(
        broker_id,
        config=dynamic,
        topics=topic_configs,
        replicas=replicas,
        controller=controller,
        on_broker_changed=lambda: maintenance.check_retention_every(
            dynamic.integer("log.retention.check.interval.ms")
        ),
    )
    config_changes = ConfigChanges(
        metadata_store, scheduler, clock, known=applier.known, take=applier.take
    )
    rack_reads = RackReads(
        broker_id=broker_id,
        rack=config.rack,
        metadata=metadata,
        clock=clock,
        lag_max_ms=config.integer("replica.lag.time.max.ms"),
        has_lease=lambda: replicas.lease.is_held,
        leader_heard_ms=fetchers.heard_ms,
    )
    reader = FetchReader(
        replicas,
        is_current=metadata.is_current,
        on_damage=scrubs.report,
        throttle=throttle,
        rack_reads=rack_reads if config.get(REPLICA_SELECTOR) in RACK_AWARE_SELECTORS else None,
    )
    topic_admin = TopicAdmin(
        dynamic, metadata_store=metadata_store, scheduler=scheduler, metadata=metadata
    )

    def state_topic_of(plan: StateTopicPlan) -> StateTopic:
        return StateTopic(
            plan, dynamic, metadata_store=metadata_store, topic_admin=topic_admin, metadata=metadata
        )

    state_topic = state_topic_of(transactions.PLAN)
    group_topic = state_topic_of(groups.PLAN)
    marker_writes = MarkerWrites(replicas, scheduler)
    troubles = LoadTroubles(
        clock,
        repair=lambda partition, offset: scrubs.report(
            partition, offset, "a coordinator can't read a bad batch"
        ),
        is_sound_elsewhere=lambda partition: any(
            replica != broker_id and replica in metadata.brokers
            for replica in (partition.leader.isr.members if partition.leader else ())
        ),
        give_away=lambda partition, failure: partition.fail(failure),
    )
    runner_ports = RunnerPorts(scheduler=scheduler, clock=clock, background=background)
    topic_lookup = TopicLookup(metadata_store, cluster_id)
    coordinators = Coordinators(
        transactions.transaction_coordinators(
            config,
            transactions.MarkerPorts(
                broker_id=broker_id,
                writes=marker_writes,
                metadata=metadata,
                topics=topic_lookup,
                transport=transport,
                scheduler=scheduler,
                clock=clock,
            ),
        ),
        runner_ports,
        state_topic,
        troubles=troubles,
        tick_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    )
    group_coordinators = Coordinators(
        groups.group_coordinators(
            config,
            TopicPorts(metadata=metadata, lookup=topic_lookup),
            scheduler=scheduler,
            clock=clock,
        ),
        runner_ports,
        group_topic,
        troubles=troubles,
        tick_ms=config.integer("offsets.retention.check.interval.ms"),
    )

    def on_leading(partition: HostedPartition) -> None:
        coordinators.lead(partition)
        group_coordinators.lead(partition)

    replicas.on_leading = on_leading
    marker_writes.on_written = groups.on_marker_written(group_coordinators)
    verifier = Verifier(
        state_topic,
        coordinators,
        broker_id=broker_id,
        transport=transport,
        scheduler=scheduler,
        clock=clock,
    )
    prepared_appends = PreparedAppends(replicas, background)
    context = BrokerContext(
        broker_id=broker_id,
        cluster_id=cluster_id,
        config=dynamic,
        replicas=replicas,
        reader=reader,
        follower_waits=FollowerWaits(),
        waiting_partitions=WaitingPartitions(),
        fetch_sessions=FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            clock,
            # Of this start: a client of the last one must not meet another's session.
            ids=Random(f"{broker_id} {clock.wall_ms()}"),
        ),
        cold_reads=ColdReads(background, reader=reader, replicas=replicas),
        metadata=metadata,
        controller=controller,
        topic_admin=topic_admin,
        topic_configs=topic_configs,
        log_starts=log_starts,
        config_store=config_store,
        config_changes=config_changes,
        producer_ids=ProducerIds(metadata_store, broker_id=broker_id),
        state_topic=state_topic,
        coordinators=coordinators,
        group_topic=group_topic,
        group_coordinators=group_coordinators,
        verifier=verifier,
        long_work=LongWork(scheduler, background, work_ns),
        prepared_appends=prepared_appends,
        replica_moves=ReplicaMoves(
            logs=logs,
            replicas=replicas,
            scheduler=scheduler,
            clock=clock,
            background=background,
            bytes_per_second=lambda: dynamic.integer(MOVES_RATE),
        ),
        transactional_appends=TransactionalAppends(replicas, prepared_appends, verifier),
        marker_writes=marker_writes,
        order_gate=order_gate,
        named_replicas=NamedReplicas(),
        orders=Orders(topic_configs, scheduler),
        strays=Strays(
            cluster_id,
            metadata_store=metadata_store,
            logs=logs,
            replicas=replicas,
            scheduler=scheduler,
        ),
        metadata_store=metadata_store,
        scheduler=scheduler,
        clock=clock,
        broker_epoch=lambda: registration.broker_epoch,
    )
    return BrokerParts(
        context=context,
        dispatcher=Dispatcher(context),
        registration=registration,
        fetchers=fetchers,
        maintenance=maintenance,
        config_changes=config_changes,
        on_refused=refusals,
    )
