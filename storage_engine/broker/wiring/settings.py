"""Settings that may change while the broker runs."""

from dataclasses import dataclass

from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.config_changes import ConfigChanges
from storage_engine.broker.settings.config_store import ConfigStore
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.broker.settings_applier import SettingsApplier
from storage_engine.broker.wiring.authentication import AuthenticationParts
from storage_engine.broker.wiring.cluster import ClusterParts
from storage_engine.broker.wiring.ports import BrokerPorts
from storage_engine.broker.wiring.upkeep import UpkeepParts


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsParts:
    """The settings as they are."""

    config: DynamicConfig
    store: ConfigStore
    topics: TopicConfigs
    clients: ClientUsage
    """The quotas of clients, and what they use."""


def build_settings(ports: BrokerPorts) -> SettingsParts:
    """The settings of the broker and of its topics."""
    config = DynamicConfig(ports.config)
    store = ConfigStore(ports.metadata_store)
    return SettingsParts(
        config=config,
        store=store,
        topics=TopicConfigs(config, store=store, scheduler=ports.scheduler),
        clients=ClientUsage(ports.clock),
    )


def build_config_changes(
    ports: BrokerPorts,
    settings: SettingsParts,
    *,
    cluster: ClusterParts,
    replicas: ReplicaManager,
    upkeep: UpkeepParts,
    users: AuthenticationParts,
) -> ConfigChanges:
    """Settings are taken as they are changed, by those who work by them."""
    config = settings.config
    applier = SettingsApplier(
        ports.broker_id,
        config=config,
        topics=settings.topics,
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
