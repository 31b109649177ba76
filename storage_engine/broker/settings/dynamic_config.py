"""A broker's settings at run time: those of its file, overridden by those in ZooKeeper for all
brokers, overridden by those for this broker.

Only settings that a running broker can change are overridden (`Setting.changes_live`); an invalid
stored value is logged and counts as absent. A listener's settings (`listener_key`) are changed for
one broker only, without passwords: every reader of ZooKeeper would see them. Source: KIP-226.

The values that the settings of a topic have, and where each comes from.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from storage_engine.broker.settings.config import (
    BrokerConfig,
    TypedReads,
    check_relations,
    log_without_effect,
)
from storage_engine.broker.settings.listener_map import ListenerKey, is_listener_key
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.setting import (
    Setting,
    SettingType,
    SettingValue,
    unknown_key_error,
)
from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY, BY_TOPIC_KEY

log = logging.getLogger(__name__)


class SourcedValue(NamedTuple):
    """A value of a setting, and its source."""

    value: SettingValue
    source: ConfigSource


_OWNERS = {ConfigSource.BROKER: "this broker", ConfigSource.ALL_BROKERS: "all brokers"}


class DynamicConfig(TypedReads):
    """The settings that are in effect, by the names of `server.properties`."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self._layers: dict[ConfigSource, dict[str, SettingValue]] = {
            ConfigSource.BROKER: {},
            ConfigSource.ALL_BROKERS: {},
        }
        """The layers of settings in their order of precedence."""
        self.checks: list[Callable[[DynamicConfig], None]] = []
        """Functions that raise ConfigError for settings that would not work once stored."""
        self.on_read: list[Callable[[], None]] = []
        """Functions that are called when settings were read, also without a change."""

    def get(self, key: str) -> SettingValue:
        """Raises KeyError for a key that is in no table. With a listener's prefix: the value for
        that listener."""
        return self.chain(key)[0].value

    def is_set(self, key: str) -> bool:
        """Whether the key itself is set anywhere, rather than a more general one."""
        is_in_layer = any(key in layer for layer in self._layers.values())
        return is_in_layer or self.static.is_set(key)

    def chain(self, key: str) -> list[SourcedValue]:
        """All values of a setting, in their order of precedence."""
        values = [
            SourcedValue(layer[key], source)
            for source, layer in self._layers.items()
            if key in layer
        ]
        if self.static.is_given(key):
            values.append(SourcedValue(self.static.get(key), ConfigSource.FILE))
        if is_listener_key(key):
            return values + self.chain(ListenerKey.parse(key).key)
        default = BY_BROKER_KEY[key].default
        if default is not None or not values:
            values.append(SourcedValue(default, ConfigSource.DEFAULT))
        return values

    def listener_keys(self) -> list[str]:
        """The keys, with prefix, of settings that listeners have of their own."""
        layers = (self.static.listener_keys, *self._layers.values())
        return sorted({key for layer in layers for key in layer if is_listener_key(key)})

    def layer(self, source: ConfigSource) -> Mapping[str, SettingValue]:
        """The stored settings for this broker, or for all."""
        return self._layers[source]

    def replace_layer(self, source: ConfigSource, stored: Mapping[str, str]) -> None:
        """Replace the settings that ZooKeeper has for this broker, or for all."""
        before = self._layers[source]
        values: dict[str, SettingValue] = {}
        for key, text in stored.items():
            try:
                values[key] = live_setting(key, source).parse(text, key=key)
            except ConfigError as failure:
                log.error("setting of %s ignored: %s", source.name.lower(), failure)
        self._layers[source] = values
        try:
            check_relations(self)
        except ConfigError as failure:
            log.error("settings of %s not applied: %s", source.name.lower(), failure)
            self._layers[source] = before
        new = {key for key, value in values.items() if before.get(key) != value}
        log_without_effect(new, BY_BROKER_KEY, where=_OWNERS[source])
        for act in self.on_read:
            act()

    def check_layer(self, source: ConfigSource, values: Mapping[str, str]) -> None:
        """Raises ConfigError when the values contradict the other settings."""
        trial = DynamicConfig(self.static)
        trial._layers.update(self._layers)
        trial._layers[source] = {
            key: live_setting(key, source).parse(values[key]) for key in values
        }
        check_relations(trial)
        for check in self.checks:
            check(trial)


def live_setting(key: str, source: ConfigSource = ConfigSource.BROKER) -> Setting:
    """The broker's setting of that name, for one broker or for all. Raises ConfigError when it does
    not exist or change at run time."""
    if is_listener_key(key):
        return _live_of_listener(key, source)
    if key in ALIASES:
        own = ALIASES[key][0]
        raise ConfigError(f"'{key}' is another name of '{own.broker_key}': set that one")
    setting = BY_BROKER_KEY.get(key)
    if setting is None:
        known = [row.broker_key for row in BY_BROKER_KEY.values() if row.changes_live]
        raise unknown_key_error(key, known, what="setting")
    if setting.live_per_listener and not setting.live:
        raise ConfigError(
            f"'{key}' can't be changed at run time for all listeners: set"
            f" listener.name.<name in lower case>.{key}"
        )
    if not setting.changes_live:
        raise ConfigError(
            f"'{key}' can't be changed at run time: change it in the broker's file and restart it"
        )
    return setting


def _live_of_listener(key: str, source: ConfigSource) -> Setting:
    parsed = ListenerKey.parse(key)
    setting = parsed.setting
    if str(parsed) != key:
        raise ConfigError(f"'{key}' is written {parsed} here")
    if setting.type is SettingType.PASSWORD:
        raise ConfigError(
            f"'{key}' can't be set at run time, since every client of ZooKeeper could read it: "
            "change it in the broker's file; a key store whose password stays is read again "
            "when ssl.keystore.location is set"
        )
    if not setting.live_per_listener:
        raise ConfigError(
            f"'{key}' can't be changed at run time: change it in the broker's file and restart it"
        )
    if source is not ConfigSource.BROKER:
        raise ConfigError(f"'{key}' can be set for one broker at a time only")
    return setting


class EffectiveSetting(NamedTuple):
    """One setting of a topic, as a line in a file of settings."""

    setting: Setting
    name: str
    value: str | None
    source: ConfigSource


def effective_settings(config: DynamicConfig, own: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    """All settings of a topic with these own ones, and the broker's or the default otherwise. A
    missing schema is left out: clients compare the settings of topics."""
    for name, setting in BY_TOPIC_KEY.items():
        if name in own:
            yield EffectiveSetting(setting, name, own[name], ConfigSource.TOPIC)
        elif setting.for_brokers:
            value, source = config.chain(setting.broker_key)[0]
            yield EffectiveSetting(setting, name, setting.format(value), source)
        elif setting.default is not None:
            default = setting.format(setting.default)
            yield EffectiveSetting(setting, name, default, ConfigSource.DEFAULT)
