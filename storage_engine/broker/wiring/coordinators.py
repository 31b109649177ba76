"""Builds the coordinators of groups and transactions, and the verification of transactions by
leaders."""

from dataclasses import dataclass

from storage_engine.broker.access.access_control import AccessControl
from storage_engine.broker.coordinators.coordinators import (
    Coordinators,
    GroupCoordinators,
    TransactionCoordinators,
)
from storage_engine.broker.coordinators.state_load import LoadTroubles
from storage_engine.broker.coordinators.state_machine import RunnerPorts
from storage_engine.broker.coordinators.state_topic import StateTopic, StateTopicPlan
from storage_engine.broker.groups import coordinator_kind as groups
from storage_engine.broker.groups.consumer_work import (
    ConsumerPorts,
    one_at_a_time,
    tell_coordinators,
)
from storage_engine.broker.groups.coordinator_kind import TopicPorts
from storage_engine.broker.groups.patterns import DescribableTopics, TopicPatterns
from storage_engine.broker.groups.topic_shapes import TopicShapes
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.transactions import coordinator_kind as transactions
from storage_engine.broker.transactions.coordinator_questions import CoordinatorQuestions
from storage_engine.broker.transactions.hanging_transactions import HangingTransactions
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.broker.transactions.transactional_appends import TransactionalAppends
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.broker.upkeep.scrubs import Scrubs
from storage_engine.broker.wiring.parts import (
    BrokerPorts,
    ClusterParts,
    ReplicaParts,
    SettingsParts,
)

_TIMEOUT_CHECKS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorParts:
    """The coordinators of groups and of transactions."""

    groups: GroupCoordinators
    group_topic: StateTopic
    transactions: TransactionCoordinators
    transaction_topic: StateTopic
    marker_writes: MarkerWrites
    verifier: Verifier
    hanging_transactions: HangingTransactions
    transactional_appends: TransactionalAppends


def build_coordinators(
    ports: BrokerPorts,
    settings: SettingsParts,
    *,
    cluster: ClusterParts,
    replicas: ReplicaParts,
    scrubs: Scrubs,
    access: AccessControl | None,
) -> CoordinatorParts:
    """Build the coordinators for the partitions of their topics that this broker will lead."""
    manager, config = replicas.manager, settings.config
    group_topic = _state_topic(groups.PLAN, ports, config, cluster)
    transaction_topic = _state_topic(transactions.PLAN, ports, config, cluster)
    troubles = _load_troubles(ports, cluster, scrubs)
    consumer_ports = _consumer_ports(ports, settings, cluster, group_topic, access)
    group_coordinators = _group_coordinators(ports, cluster, consumer_ports, troubles)
    tell_coordinators(group_coordinators, consumer_ports, ports.scheduler, ports.clock)
    marker_writes = MarkerWrites(
        manager, ports.scheduler, on_appended=groups.on_marker_written(group_coordinators)
    )
    transaction_coordinators = _transaction_coordinators(
        ports, cluster, transaction_topic, troubles, marker_writes
    )

    def on_leading(partition: HostedPartition) -> None:
        transaction_coordinators.lead(partition)
        group_coordinators.lead(partition)

    # Set late, since coordinators append to the replicas whose roles they follow.
    manager.on_leading = on_leading
    questions = CoordinatorQuestions(
        transaction_coordinators,
        broker_id=ports.broker_id,
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
    )
    verifier = Verifier(transaction_topic, questions, scheduler=ports.scheduler)
    return CoordinatorParts(
        groups=group_coordinators,
        group_topic=group_topic,
        transactions=transaction_coordinators,
        transaction_topic=transaction_topic,
        marker_writes=marker_writes,
        verifier=verifier,
        hanging_transactions=HangingTransactions(
            transaction_topic,
            questions,
            replicas=manager,
            writes=marker_writes,
            scheduler=ports.scheduler,
            clock=ports.clock,
            interval_ms=ports.config.integer(_TIMEOUT_CHECKS),
        ),
        transactional_appends=TransactionalAppends(manager, replicas.producer_appends, verifier),
    )


def _state_topic(
    plan: StateTopicPlan, ports: BrokerPorts, config: DynamicConfig, cluster: ClusterParts
) -> StateTopic:
    return StateTopic(
        plan,
        config,
        metadata_store=ports.metadata_store,
        topic_admin=cluster.topic_admin,
        metadata=cluster.metadata,
    )


def _load_troubles(ports: BrokerPorts, cluster: ClusterParts, scrubs: Scrubs) -> LoadTroubles:
    def is_sound_elsewhere(partition: HostedPartition) -> bool:
        in_sync = partition.leader.isr.members if partition.leader else ()
        return any(
            replica != ports.broker_id and replica in cluster.metadata.brokers
            for replica in in_sync
        )

    return LoadTroubles(
        ports.clock,
        repair=lambda partition, offset: scrubs.report(
            partition, offset, "a coordinator can't read a bad batch"
        ),
        is_sound_elsewhere=is_sound_elsewhere,
        give_away=lambda partition, failure: partition.fail(failure),
    )


def _runner_ports(ports: BrokerPorts) -> RunnerPorts:
    return RunnerPorts(scheduler=ports.scheduler, clock=ports.clock, background=ports.background)


def _consumer_ports(
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    topic: StateTopic,
    access: AccessControl | None,
) -> ConsumerPorts:
    shapes = TopicShapes(cluster.metadata, ports.scheduler)
    describable = DescribableTopics(access)
    return ConsumerPorts(
        topic=topic,
        shapes=shapes,
        patterns=TopicPatterns(
            ports.background,
            ports.scheduler,
            ports.clock,
            topics=shapes.names,
            describable=describable,
        ),
        describable=describable,
        computations=one_at_a_time(ports.background),
        configs=settings.groups,
    )


def _group_coordinators(
    ports: BrokerPorts,
    cluster: ClusterParts,
    consumer: ConsumerPorts,
    troubles: LoadTroubles,
) -> GroupCoordinators:
    return Coordinators(
        groups.group_coordinators(
            ports.config,
            TopicPorts(metadata=cluster.metadata, lookup=cluster.topic_lookup),
            consumer,
            scheduler=ports.scheduler,
            clock=ports.clock,
        ),
        _runner_ports(ports),
        consumer.topic,
        troubles=troubles,
        tick_ms=ports.config.integer("offsets.retention.check.interval.ms"),
    )


def _transaction_coordinators(
    ports: BrokerPorts,
    cluster: ClusterParts,
    topic: StateTopic,
    troubles: LoadTroubles,
    marker_writes: MarkerWrites,
) -> TransactionCoordinators:
    return Coordinators(
        transactions.transaction_coordinators(
            ports.config,
            transactions.MarkerPorts(
                broker_id=ports.broker_id,
                writes=marker_writes,
                metadata=cluster.metadata,
                topics=cluster.topic_lookup,
                transport=ports.transport,
                scheduler=ports.scheduler,
                clock=ports.clock,
            ),
        ),
        _runner_ports(ports),
        topic,
        troubles=troubles,
        tick_ms=ports.config.integer(_TIMEOUT_CHECKS),
    )
