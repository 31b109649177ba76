"""Builds the part of a broker that takes part in the cluster: its registration, and its view of the
others."""

from dataclasses import dataclass

from storage_engine.broker.cluster.dead_sessions import DeadSessions, RefusedPorts
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts, LeaderProbes
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.cluster.registration import ProducerIds, Registration
from storage_engine.broker.cluster.topic_admin import TopicAdmin, TopicLookup
from storage_engine.broker.controller.acting_controller import ControllerSettings
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.core.control.cluster_state import ONLY_LISTENER
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Endpoint
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.settings import BY_PORT, DEATH_PROOF, NO_PROOF
from storage_engine.zookeeper.znodes.cluster_znodes import NO_PORT, BrokerIdZNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """The broker's place in the cluster."""

    metadata: MetadataCache
    doubts: LeaderDoubts
    probes: LeaderProbes
    registration: Registration
    dead_sessions: DeadSessions | None
    """None where a dead broker's session is always waited for."""
    order_gate: OrderGate
    controller: ControllerRunner
    topic_admin: TopicAdmin
    topic_lookup: TopicLookup
    producer_ids: ProducerIds


def build_cluster(ports: BrokerPorts, config: DynamicConfig) -> ClusterParts:
    """Registration, controller and metadata."""
    metadata = MetadataCache(ports.config.listeners.inter_broker.name)
    registration = _registration(ports)
    order_gate = OrderGate(ports.metadata_store, lambda: registration.broker_epoch)
    doubts = LeaderDoubts(metadata, ports.clock)
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
        dead_sessions=_dead_sessions(ports, metadata, doubts),
        order_gate=order_gate,
        controller=_controller(ports, config, order_gate),
        topic_admin=TopicAdmin(
            config,
            metadata_store=ports.metadata_store,
            scheduler=ports.scheduler,
            metadata=metadata,
        ),
        topic_lookup=TopicLookup(ports.metadata_store, ports.cluster_id),
        producer_ids=ProducerIds(ports.metadata_store, broker_id=ports.broker_id),
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
            endpoints=tuple(map(str, advertised)),
            protocols={}
            if is_only_plain
            else {listener.name: listener.protocol.name for listener in advertised},
            tail_lost_epoch=ports.logs.dirs.tail_lost_epoch,
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
    ports: BrokerPorts, config: DynamicConfig, order_gate: OrderGate
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
            balance_percentage=static.integer("leader.imbalance.per.broker.percentage"),
        ),
        metadata_store=ports.metadata_store,
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
        known_epoch=lambda: order_gate.controller_epoch,
    )
