"""Builds a broker from its ports."""

from storage_engine.broker.dispatcher import Dispatcher
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.quotas.client_usage import RequestQuotas
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings_applier import SettingsApplier
from storage_engine.broker.wiring.access import build_access
from storage_engine.broker.wiring.authentication import AuthenticationParts, build_authentication
from storage_engine.broker.wiring.broker_parts import BrokerParts
from storage_engine.broker.wiring.coordinators import build_coordinators
from storage_engine.broker.wiring.handlers import add_handlers
from storage_engine.broker.wiring.parts import (
    BrokerPorts,
    ClusterParts,
    SettingsParts,
    build_cluster,
    build_replicas,
    build_requests,
    build_settings,
)
from storage_engine.broker.wiring.schemas import build_schemas
from storage_engine.broker.wiring.upkeep import UpkeepParts, build_upkeep

__all__ = ["BrokerParts", "build"]


def _config_changes(
    ports: BrokerPorts,
    settings: SettingsParts,
    *,
    cluster: ClusterParts,
    replicas: ReplicaManager,
    upkeep: UpkeepParts,
    users: AuthenticationParts,
) -> ConfigChanges:
    """Build the reader of changed settings, and connect it to the parts that use them."""
    config = settings.config
    applier = SettingsApplier(
        ports.broker_id,
        config=config,
        topics=settings.topics,
        groups=settings.groups,
        replicas=replicas,
        controller=cluster.controller,
        scram_users=users.scram_users,
        clients=settings.clients,
        on_broker_changed=upkeep.maintenance.settings_may_have_changed,
    )
    return ConfigChanges(
        ports.metadata_store,
        ports.scheduler,
        ports.clock,
        known=applier.known,
        take=applier.take,
    )


def build(ports: BrokerPorts) -> BrokerParts:
    """Build all parts; nothing runs yet."""
    settings = build_settings(ports)
    cluster = build_cluster(ports, settings.config)
    schemas = build_schemas(ports, cluster)
    replicas = build_replicas(ports, settings, cluster, schemas.writers)
    manager = replicas.manager
    upkeep = build_upkeep(
        ports,
        settings=settings.config,
        replicas=manager,
        metadata=cluster.metadata,
        new_producers=replicas.new_producers,
    )
    authentication = build_authentication(ports)
    config_changes = _config_changes(
        ports, settings, cluster=cluster, replicas=manager, upkeep=upkeep, users=authentication
    )
    requests = build_requests(
        ports,
        replicas=replicas,
        cluster=cluster,
        scrubs=upkeep.scrubs,
        schema_ids=schemas.topic_ids,
    )
    access = build_access(ports)
    coordinators = build_coordinators(
        ports,
        settings,
        cluster=cluster,
        replicas=replicas,
        scrubs=upkeep.scrubs,
        access=None if access is None else access.control,
    )
    table = HandlerTable()
    quotas = RequestQuotas(settings.clients, ports.scheduler)
    parts = BrokerParts(
        ports=ports,
        settings=settings,
        config_changes=config_changes,
        cluster=cluster,
        schemas=schemas,
        replicas=replicas,
        upkeep=upkeep,
        requests=requests,
        coordinators=coordinators,
        authentication=authentication,
        access=access,
        table=table,
        quotas=quotas,
    )
    add_handlers(parts)
    parts.dispatcher = Dispatcher(
        table, requests.long_work, quotas, access, lambda: cluster.features.finalized
    )
    return parts
