"""What handlers work with, and the one request that each of them answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storage_engine.broker.cluster.full_order import NamedReplicas
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.cluster.order_gate import OrderGate
from storage_engine.broker.cluster.orders import Orders
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.cluster.topic_admin import TopicAdmin
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.coordinators.kinds import GroupCoordinators, TransactionCoordinators
from storage_engine.broker.coordinators.state_topic import StateTopic
from storage_engine.broker.replicas.log_starts import LogStarts
from storage_engine.broker.replicas.prepared_appends import PreparedAppends
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.replicas.replica_moves import ReplicaMoves
from storage_engine.broker.requests.cold_reads import ColdReads
from storage_engine.broker.requests.delayed_fetch import FollowerWaits, WaitingPartitions
from storage_engine.broker.requests.fetch_reads import FetchReader
from storage_engine.broker.requests.fetch_sessions import FetchSessions
from storage_engine.broker.requests.long_work import LongWork, Steps
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import ConfigStore
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.topic_configs import TopicConfigs
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.broker.transactions.transactional_appends import TransactionalAppends
from storage_engine.broker.transactions.verifier import Verifier
from storage_engine.broker.upkeep.strays import Strays
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import Clock, MetadataStore, Scheduler
from storage_engine.net.connection import Connection, Exchange
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
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
    waiting_partitions: WaitingPartitions
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
    coordinators: TransactionCoordinators
    group_topic: StateTopic
    group_coordinators: GroupCoordinators
    verifier: Verifier
    long_work: LongWork
    prepared_appends: PreparedAppends
    replica_moves: ReplicaMoves
    transactional_appends: TransactionalAppends
    marker_writes: MarkerWrites
    order_gate: OrderGate
    named_replicas: NamedReplicas
    orders: Orders
    strays: Strays
    metadata_store: MetadataStore
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
        if self.replicas.lease.is_held:
            return list(every)
        others = [broker for broker in every if broker.broker_id != self.broker_id]
        return others or list(every)


class Call:
    """A request under way."""

    __slots__ = (
        "client_id",
        "connection",
        "correlation_id",
        "exchange",
        "is_long",
        "is_urgent",
        "spec",
        "version",
        "work",
    )

    def __init__(
        self,
        spec: ApiSpec,
        version: int,
        correlation_id: int,
        connection: Connection,
        exchange: Exchange,
        client_id: str = "",
        work: LongWork | None = None,
    ) -> None:
        self.client_id = client_id
        self.work = work
        self.is_long = False
        self.is_urgent = False
        self.spec = spec
        self.version = version
        self.correlation_id = correlation_id
        self.connection = connection
        self.exchange = exchange

    def respond(self, message: Any) -> None:
        """Answer; exactly once. A long answer is encoded by a thread, and then sent."""
        if self.is_long and self.work is not None:
            self.hold()
            self.work.beside(
                lambda: self._encoded(message), self._on_encoded, is_urgent=self.is_urgent
            )
        else:
            self.exchange.respond(self._encoded(message))

    def run(self, steps: Steps) -> None:
        """Work that may be long, of a handler or of what it has called back."""
        assert self.work is not None
        self.work.run(self, steps)

    def _encoded(self, message: Any) -> list[Buffer]:
        return encode_response_frame(self.spec, self.version, self.correlation_id, message)

    def _on_encoded(self, buffers: Any, error: Exception | None) -> None:
        if error is not None:
            self.failed(error)
        else:
            self.exchange.respond(buffers)
        self.release()

    # What LongWork asks for.

    def hold(self) -> None:
        """Take up no further request of the connection."""
        self.connection.hold()

    def release(self) -> None:
        """Take up the next one."""
        self.connection.release()

    def failed(self, error: Exception) -> None:
        """Tell it, and close the connection: the client learns that there is no answer."""
        self.connection.request_failed(error)

    @property
    def is_gone(self) -> bool:
        return self.exchange.closed


Handler = Callable[[BrokerContext, Call, Any], Steps | None]
"""A handler whose lists may be long is a generator: where it yields, others get their turn."""
