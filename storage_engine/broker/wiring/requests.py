"""Builds the parts that serve requests of any length: reads, waits, fetch sessions, work in
turns."""

from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.current_leaders import CurrentLeaders
from storage_engine.broker.requests.fetch_reads import PartitionReader
from storage_engine.broker.requests.fetch_sessions import FetchSessions
from storage_engine.broker.requests.fetch_waits import FetchWaits
from storage_engine.broker.requests.follower_sessions import session_maker
from storage_engine.broker.requests.json_answers import JsonAnswers
from storage_engine.broker.requests.long_work import LongWork
from storage_engine.broker.requests.rack_reads import RackReads
from storage_engine.broker.upkeep.scrubs import Scrubs
from storage_engine.broker.wiring.cluster import ClusterParts
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.broker.wiring.replicas import ReplicaParts
from storage_engine.core.settings.settings import RACK_AWARE_SELECTORS, REPLICA_SELECTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """Reads and waits."""

    reader: PartitionReader
    cold_reads: ColdReads
    json_answers: JsonAnswers
    fetch_sessions: FetchSessions
    fetch_waits: FetchWaits
    long_work: LongWork
    leaders: CurrentLeaders


def build_requests(
    ports: BrokerPorts, *, replicas: ReplicaParts, cluster: ClusterParts, scrubs: Scrubs
) -> RequestParts:
    """Reads of what the replicas have."""
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
        json_answers=JsonAnswers(
            ports.background, reader=reader, replicas=manager, cold_reads=cold_reads
        ),
        fetch_sessions=FetchSessions(
            ports.config.integer("max.incremental.fetch.session.cache.slots"),
            ports.clock,
            make=session_maker(manager.get),
        ),
        fetch_waits=FetchWaits(reader, replicas=manager, scheduler=ports.scheduler),
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
