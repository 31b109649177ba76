"""Passes new settings to the parts of the broker that use them.

A new setting counts from a log's next append or check, and from the controller's next decision;
work that is under way is not disturbed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

from storage_engine.broker.authentication.scram_users import ScramUsers
from storage_engine.broker.controller.runner import ControllerRunner
from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.settings.config_store import OF_CLIENTS, ConfigEntity, EntityKind
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.group_config import GroupConfigs
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.core.ids import BrokerId
from storage_engine.core.settings.config_source import ConfigSource

log = logging.getLogger(__name__)

SHOWN_MAX = 400
"""The most characters of a setting that are logged: a topic's schema may be long."""


class SettingsApplier:
    """Applies settings as they are read from ZooKeeper."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        config: DynamicConfig,
        topics: TopicConfigs,
        groups: GroupConfigs,
        replicas: ReplicaManager,
        controller: ControllerRunner,
        scram_users: ScramUsers,
        clients: ClientUsage,
        on_broker_changed: Callable[[], None],
    ) -> None:
        """`on_broker_changed`: called when the broker's own settings may have changed."""
        self._sources = {
            ConfigEntity.broker(broker_id): ConfigSource.BROKER,
            ConfigEntity.all_brokers(): ConfigSource.ALL_BROKERS,
        }
        self._config = config
        self._topics = topics
        self._groups = groups
        self._replicas = replicas
        self._controller = controller
        self._scram_users = scram_users
        self._clients = clients
        self._on_broker_changed = on_broker_changed

    def known(self) -> Iterator[ConfigEntity]:
        """The entities whose settings this broker uses."""
        yield from self._sources
        for topic in self._topics.known():
            yield ConfigEntity.topic(topic)
        for group_id in self._groups.names():
            yield ConfigEntity.group(group_id)
        for user in self._scram_users:
            yield ConfigEntity.user(user)
        yield from self._clients.known()

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Apply the present settings of an entity."""
        if entity.kind is EntityKind.TOPIC:
            self._take_topic(entity.name, settings)
        elif entity.kind is EntityKind.GROUP:
            self._groups.take(entity.name, settings)
        elif entity in self._sources:
            self._take_broker(entity, settings)
        elif entity.kind in OF_CLIENTS:
            self._clients.take(entity, settings)
            if entity.kind is EntityKind.USER:
                log.debug("credentials applied of=%s", entity.path)
                self._scram_users.update(entity.name, settings)

    def _take_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        if self._topics.update(topic, settings):
            shown = {name: value[:SHOWN_MAX] for name, value in settings.items()}
            log.info("settings applied of=topics/%s settings=%s", topic, shown)
            self._replicas.apply_topic_config(topic, self._topics.of(topic))
        self._controller.settings_changed([topic])

    def _take_broker(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        source = self._sources[entity]
        before = self._config.layer(source)
        self._config.replace_layer(source, settings)
        if self._config.layer(source) == before:
            return
        # Not the stored text: others may have written a password.
        log.info("settings applied of=%s settings=%s", entity.path, self._config.layer(source))
        for topic in {partition.topic_partition.topic for partition in self._replicas}:
            self._replicas.apply_topic_config(topic, self._topics.of(topic))
        self._controller.settings_changed(None)
        self._on_broker_changed()
