"""Builds a broker from its ports."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.cluster.registration import BrokerIdInUseError
from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.handlers.records.produce import ProduceHandler
from storage_engine.broker.quotas.client_usage import RequestQuotas
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.upkeep.orphaned_logs import OrphanedLogs
from storage_engine.broker.wiring.access import AccessParts, build_access, guard_all
from storage_engine.broker.wiring.authentication import AuthenticationParts, build_authentication
from storage_engine.broker.wiring.cluster import ClusterParts, build_cluster
from storage_engine.broker.wiring.coordinators import CoordinatorParts, build_coordinators
from storage_engine.broker.wiring.handlers import (
    add_administration_apis,
    add_controller_apis,
    add_group_apis,
    add_order_apis,
    add_record_apis,
    add_transaction_apis,
    cluster_for_clients,
)
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.broker.wiring.replicas import ReplicaParts, build_replicas
from storage_engine.broker.wiring.requests import RequestParts, build_requests
from storage_engine.broker.wiring.settings import (
    SettingsParts,
    build_config_changes,
    build_settings,
)
from storage_engine.broker.wiring.upkeep import UpkeepParts, build_upkeep
from storage_engine.core.ids import BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """A broker that is built but not yet known to the cluster."""

    ports: BrokerPorts
    settings: SettingsParts
    config_changes: ConfigChanges
    cluster: ClusterParts
    replicas: ReplicaParts
    upkeep: UpkeepParts
    requests: RequestParts
    coordinators: CoordinatorParts
    authentication: AuthenticationParts
    access: AccessParts | None
    """None where everybody may do everything."""
    table: HandlerTable
    quotas: RequestQuotas
    dispatcher: Dispatcher

    def join_cluster(self, on_refused: Callable[[BrokerIdInUseError], None]) -> None:
        """Register and stand for controller. `on_refused`: the id belongs to another live
        broker."""
        registration, controller = self.cluster.registration, self.cluster.controller

        def on_registered(epoch: BrokerEpoch) -> None:
            self.ports.logs.dirs.keep_tail_lost_epoch(epoch)
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
            register()

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
        """Call back when the access rules were read. Who is served before is refused everything."""
        if self.access is None:
            act()
        else:
            self.access.watch.when_ready(act)

    def close(self) -> None:
        """Stop following and leading; answer the requests that wait."""
        self.cluster.registration.close()
        if self.cluster.dead_sessions is not None:
            self.cluster.dead_sessions.close()
        self.authentication.close()
        if self.access is not None:
            self.access.close()
        self.config_changes.close()
        self.cluster.controller.close()
        self.upkeep.maintenance.close()
        self.replicas.moves.close()
        self.replicas.fetchers.close()
        self.coordinators.hanging_transactions.close()
        self.coordinators.transactions.close()
        self.coordinators.groups.close()
        self.replicas.manager.close()


def _produce_handler(
    ports: BrokerPorts,
    replicas: ReplicaParts,
    requests: RequestParts,
    coordinators: CoordinatorParts,
    access: AccessParts | None,
) -> ProduceHandler:
    return ProduceHandler(
        replicas=replicas.manager,
        producer_appends=replicas.producer_appends,
        transactional_appends=coordinators.transactional_appends,
        scheduler=ports.scheduler,
        leaders=requests.leaders,
        may_still_write=None if access is None else access.may_still_write,
    )


def _handler_table(
    ports: BrokerPorts,
    settings: SettingsParts,
    cluster: ClusterParts,
    replicas: ReplicaParts,
    config_changes: ConfigChanges,
    *,
    requests: RequestParts,
    coordinators: CoordinatorParts,
    orphaned_logs: OrphanedLogs,
    authentication: AuthenticationParts,
    access: AccessParts | None,
    produce: ProduceHandler,
) -> HandlerTable:
    """All APIs, each behind what it asks for."""
    manager, table = replicas.manager, HandlerTable()
    authentication.gate.add_apis(table)
    add_record_apis(
        table,
        ports,
        produce=produce,
        cluster=cluster,
        replicas=replicas,
        requests=requests,
        access=access,
    )
    add_transaction_apis(table, ports, cluster=cluster, replicas=manager, coordinators=coordinators)
    add_group_apis(table, ports, settings, cluster, replicas=manager, coordinators=coordinators)
    add_administration_apis(
        table, ports, settings, cluster, replicas, config_changes, access=access
    )
    add_controller_apis(table, ports, settings, cluster)
    add_order_apis(
        table,
        ports,
        settings,
        cluster,
        replicas=manager,
        coordinators=coordinators,
        orphaned_logs=orphaned_logs,
    )
    guard_all(table, access, cluster_for_clients(ports, cluster, manager))
    return table


def build(ports: BrokerPorts) -> BrokerParts:
    """Build all parts; nothing runs yet."""
    settings = build_settings(ports)
    cluster = build_cluster(ports, settings.config)
    replicas = build_replicas(ports, settings, cluster)
    manager = replicas.manager
    upkeep = build_upkeep(
        ports,
        settings=settings.config,
        replicas=manager,
        metadata=cluster.metadata,
        new_producers=replicas.new_producers,
    )
    authentication = build_authentication(ports)
    config_changes = build_config_changes(
        ports, settings, cluster=cluster, replicas=manager, upkeep=upkeep, users=authentication
    )
    requests = build_requests(ports, replicas=replicas, cluster=cluster, scrubs=upkeep.scrubs)
    coordinators = build_coordinators(
        ports, settings.config, cluster=cluster, replicas=replicas, scrubs=upkeep.scrubs
    )
    access = build_access(ports)
    produce = _produce_handler(ports, replicas, requests, coordinators, access)
    table = _handler_table(
        ports,
        settings,
        cluster,
        replicas,
        config_changes,
        requests=requests,
        coordinators=coordinators,
        orphaned_logs=upkeep.orphaned_logs,
        authentication=authentication,
        access=access,
        produce=produce,
    )
    quotas = RequestQuotas(settings.clients, ports.scheduler)
    return BrokerParts(
        ports=ports,
        settings=settings,
        config_changes=config_changes,
        cluster=cluster,
        replicas=replicas,
        upkeep=upkeep,
        requests=requests,
        coordinators=coordinators,
        authentication=authentication,
        access=access,
        table=table,
        quotas=quotas,
        dispatcher=Dispatcher(table, requests.long_work, quotas, access),
    )
