"""All parts of a broker, and how they start and end together."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.quotas.client_usage import RequestQuotas
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.wiring.access import AccessParts
from storage_engine.broker.wiring.authentication import AuthenticationParts
from storage_engine.broker.wiring.coordinators import CoordinatorParts
from storage_engine.broker.wiring.parts import (
    BrokerPorts,
    ClusterParts,
    ReplicaParts,
    RequestParts,
    SettingsParts,
)
from storage_engine.broker.wiring.schemas import SchemaParts
from storage_engine.broker.wiring.upkeep import UpkeepParts
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import BrokerEpoch


@dataclass(slots=True, kw_only=True)
class BrokerParts:
    """A broker that is built but not yet known to the cluster."""

    ports: BrokerPorts
    settings: SettingsParts
    config_changes: ConfigChanges
    cluster: ClusterParts
    schemas: SchemaParts
    replicas: ReplicaParts
    upkeep: UpkeepParts
    requests: RequestParts
    coordinators: CoordinatorParts
    authentication: AuthenticationParts
    access: AccessParts | None
    """None without an authorizer: every client may do everything."""
    table: HandlerTable
    quotas: RequestQuotas
    dispatcher: Dispatcher = field(init=False)
    """Set when the table of handlers is complete."""

    def join_cluster(self, on_refused: Callable[[HeadraceError], None]) -> None:
        """Register and stand for controller. `on_refused`: the id belongs to another live broker,
        or this one does not support the features that the cluster uses."""
        registration, controller = self.cluster.registration, self.cluster.controller

        def on_registered(epoch: BrokerEpoch) -> None:
            self.ports.logs.dirs.keep_registration(epoch)
            self.cluster.places.start()
            controller.start()

        def register() -> None:
            if self.cluster.dead_sessions is not None:
                self.cluster.dead_sessions.start()
            registration.start(
                on_registered=on_registered,
                on_refused=on_refused,
                on_lost=self.replicas.manager.lease.fence,
            )

        def on_settings_known() -> None:
            self.authentication.gate.open()
            self.cluster.features.when_known(register, on_refused)

        self.cluster.cordon.start()
        self.replicas.manager.start()
        self.upkeep.maintenance.start()
        self.replicas.moves.start()
        self.coordinators.transactions.start()
        self.coordinators.hanging_transactions.start()
        self.coordinators.groups.start()
        # The settings of this broker count before it gets its first order, the access rules and
        # the users before its first client.
        read_settings = partial(self.config_changes.start, on_settings_known)
        self.when_access_is_known(partial(self.authentication.start, read_settings))

    def when_access_is_known(self, act: Callable[[], None]) -> None:
        """Call `act` once the access rules are read. Earlier requests are all refused."""
        if self.access is None:
            act()
        else:
            self.access.watch.when_ready(act)

    def close(self) -> None:
        """Stop following and leading; answer the requests that wait."""
        self.cluster.registration.close()
        self.cluster.features.close()
        self.cluster.places.close()
        if self.cluster.dead_sessions is not None:
            self.cluster.dead_sessions.close()
        self.authentication.close()
        if self.access is not None:
            self.access.close()
        self.config_changes.close()
        self.cluster.controller.close()
        self.schemas.log.close()
        self.upkeep.maintenance.close()
        self.replicas.moves.close()
        self.replicas.fetchers.close()
        self.coordinators.hanging_transactions.close()
        self.coordinators.transactions.close()
        self.coordinators.groups.close()
        self.replicas.manager.close()
