"""The replicas of a broker: logs, roles, and the fetches of those that follow."""

from dataclasses import dataclass

from storage_engine.broker.quotas.client_usage import NewProducers
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.log_starts import LogStarts
from storage_engine.broker.replicas.producer_appends import ProducerAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager, ReplicaSettings
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.replicas.replication_throttle import ReplicationThrottle
from storage_engine.broker.wiring.cluster import ClusterParts
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.broker.wiring.settings import SettingsParts
from storage_engine.core.replication.partition import LagLimits
from storage_engine.core.settings.settings import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_RATE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaParts:
    """The replicas, and what works on them."""

    manager: ReplicaManager
    log_starts: LogStarts
    throttle: ReplicationThrottle
    fetchers: FetcherManager
    producer_appends: ProducerAppends
    new_producers: NewProducers
    moves: ReplicaMoves


def build_replicas(
    ports: BrokerPorts, settings: SettingsParts, cluster: ClusterParts
) -> ReplicaParts:
    """The replicas with their fetchers."""
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
        producer_appends=ProducerAppends(manager, ports.background, new_producers),
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
        wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
        backoff_ms=config.integer("replica.fetch.backoff.ms"),
    )
