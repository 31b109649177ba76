"""The ports of a broker."""

from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import (
    Background,
    Clock,
    ForeignSessions,
    MetadataStore,
    PeerPorts,
    Processes,
    Scheduler,
)
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.protocol.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """Settings, logs and the outside world, for one broker."""

    config: BrokerConfig
    cluster_id: str
    logs: LogManager
    metadata_store: MetadataStore
    transport: Transport
    scheduler: Scheduler
    clock: Clock
    background: Background
    work_ns: Callable[[], int]
    """A clock in nanoseconds, to bound what one turn of the event loop does."""
    lease_valid: Callable[[], bool]
    """Whether the session with ZooKeeper is surely alive, by this broker's clock."""
    processes: Processes
    foreign_sessions: ForeignSessions
    peer_ports: PeerPorts

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(self.config.broker_id)
