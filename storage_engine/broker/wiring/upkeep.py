"""Builds the periodic work on a broker's logs: retention, flushes, compaction, scrubs (checks of
checksums), and logs that no order of the controller names."""

from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.quotas.new_producers import NewProducers
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.upkeep.compactions import Compactions
from storage_engine.broker.upkeep.log_maintenance import LogMaintenance, MaintenanceIntervals
from storage_engine.broker.upkeep.orphaned_logs import OrphanedLogs
from storage_engine.broker.upkeep.scrubs import Scrubs, ScrubSettings
from storage_engine.broker.wiring.parts import BrokerPorts
from storage_engine.log.log_config import KEY as DELETION_POLICY_KEY
from storage_engine.log.log_config import load_policy

FINISHED_SEGMENTS_MS = 1000
"""How soon a finished segment is flushed, whatever flush.ms is, so that recovery skips it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepParts:
    """The parts that maintain the logs."""

    maintenance: LogMaintenance
    scrubs: Scrubs
    orphaned_logs: OrphanedLogs


def build_upkeep(
    ports: BrokerPorts,
    *,
    settings: DynamicConfig,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    new_producers: NewProducers,
) -> UpkeepParts:
    """Build the periodic work; it is not started yet."""
    config = ports.config
    compactions = None
    if config.flag("log.cleaner.enable"):
        compactions = Compactions(
            keys_max_bytes=lambda: settings.integer("log.cleaner.dedupe.buffer.size"),
            replicas=replicas,
            scheduler=ports.scheduler,
            clock=ports.clock,
            background=ports.background,
        )
    scrubs = Scrubs(
        ScrubSettings(
            broker_id=ports.broker_id,
            interval_ms=config.integer("log.scrub.interval.ms"),
            bytes_per_second=config.integer("log.scrub.bytes.per.second"),
        ),
        replicas=replicas,
        metadata=metadata,
        transport=ports.transport,
        scheduler=ports.scheduler,
        clock=ports.clock,
        background=ports.background,
        is_compacting=lambda: compactions is not None and compactions.is_running,
    )
    maintenance = LogMaintenance(
        MaintenanceIntervals(
            retention_ms=lambda: settings.integer("log.retention.check.interval.ms"),
            compaction_ms=lambda: settings.integer("log.cleaner.backoff.ms"),
            flush_ms=min(config.integer("log.flush.scheduler.interval.ms"), FINISHED_SEGMENTS_MS),
            checkpoint_ms=config.integer("log.flush.offset.checkpoint.interval.ms"),
        ),
        logs=ports.logs,
        replicas=replicas,
        scheduler=ports.scheduler,
        clock=ports.clock,
        background=ports.background,
        deletion_policy=load_policy(config.text(DELETION_POLICY_KEY)),
        compactions=compactions,
        scrubs=scrubs,
        new_producers=new_producers,
    )
    orphaned_logs = OrphanedLogs(
        ports.cluster_id,
        metadata_store=ports.metadata_store,
        logs=ports.logs,
        replicas=replicas,
        scheduler=ports.scheduler,
    )
    return UpkeepParts(maintenance=maintenance, scrubs=scrubs, orphaned_logs=orphaned_logs)
