"""What handlers work with, and the one request that each of them answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storage_engine.broker.cold_reads import ColdReads
from storage_engine.broker.config_changes import ConfigChanges
from storage_engine.broker.config_store import ConfigStore
from storage_engine.broker.controller_runner import ControllerRunner
from storage_engine.broker.coordination.coordinators import Coordinators
from storage_engine.broker.coordination.state_topic import StateTopic
from storage_engine.broker.delayed_fetch import FollowerWaits
from storage_engine.broker.dynamic_config import DynamicConfig
from storage_engine.broker.fetch_reads import FetchReader
from storage_engine.broker.fetch_sessions import FetchSessions
from storage_engine.broker.log_starts import LogStarts
from storage_engine.broker.metadata_cache import MetadataCache
from storage_engine.broker.order_gate import OrderGate
from storage_engine.broker.orders import Orders
from storage_engine.broker.producer_ids import ProducerIds
from storage_engine.broker.replica_manager import ReplicaManager
from storage_engine.broker.strays import Strays
from storage_engine.broker.topic_admin import TopicAdmin
from storage_engine.broker.topic_configs import TopicConfigs
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.broker.transactions.transactional_appends import TransactionalAppends
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.core.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import Clock, Coordination, Scheduler
from storage_engine.net.connection import Connection, Exchange
from storage_engine.protocol.apis.spec import ApiSpec
from storage_engine.protocol.framing import encode_response_frame


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """One broker's parts, as handlers see them."""

    broker_id: BrokerId
    cluster_id: str
    config: DynamicConfig
    replicas: ReplicaManager
    reader: FetchReader
    fetch_sessions: FetchSessions
    follower_waits: FollowerWaits
    cold_reads: ColdReads
    metadata: MetadataCache
    controller: ControllerRunner
    topic_admin: TopicAdmin
    topic_configs: TopicConfigs
    log_starts: LogStarts
    config_store: ConfigStore
    config_changes: ConfigChanges
    producer_ids: ProducerIds
    state_topic: StateTopic
    coordinators: Coordinators
    group_topic: StateTopic
    group_coordinators: Coordinators
    verifier: Verifier
    transactional_appends: TransactionalAppends
    marker_writes: MarkerWrites
    order_gate: OrderGate
    orders: Orders
    strays: Strays
    coordination: Coordination
    scheduler: Scheduler
    clock: Clock
    broker_epoch: Callable[[], BrokerEpoch]
    """This broker's present incarnation; -1 while it is not registered."""
    leaving: bool = False
    """In controlled shutdown: it still follows, but no leader takes it into an ISR again."""

    @property
    def brokers(self) -> list[BrokerInfo]:
        """The live brokers, for clients.

        A broker that may have been replaced leaves itself out, and so is no leader of anything: its
        view of the cluster may be old, and a client that goes on asking it would never hear of the
        new leaders. Alone, it has nobody to send clients to.
        """
        every = self.metadata.brokers.values()
        if self.replicas.has_lease:
            return list(every)
        others = [broker for broker in every if broker.broker_id != self.broker_id]
        return others or list(every)


class Call:
    """A request under way."""

    __slots__ = ("client_id", "connection", "correlation_id", "exchange", "spec", "version")

    def __init__(
        self,
        spec: ApiSpec,
        version: int,
        correlation_id: int,
        connection: Connection,
        exchange: Exchange,
        client_id: str = "",
    ) -> None:
        self.client_id = client_id
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.connection = connection
        self.exchange = exchange

    def respond(self, message: Any) -> None:
        """Answer; exactly once."""
        self.exchange.respond(
            encode_response_frame(self.spec, self.version, self.correlation_id, message)
        )


Handler = Callable[[BrokerContext, Call, Any], None]
