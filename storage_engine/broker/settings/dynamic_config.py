"""A broker's settings at run time: those of its file, overridden by those in ZooKeeper for all
brokers, overridden by those for this broker.

Only settings that a running broker can change are overridden (`Setting.changes_live`); an invalid
stored value is logged and counts as absent. Source: KIP-226.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.broker.settings.config import BrokerConfig, check_relations
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.setting import Setting, SettingValue, unknown_key_error
from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY

log = logging.getLogger(__name__)


class SourcedValue(NamedTuple):
    """A value of a setting, and where it stands."""

    value: SettingValue
    source: ConfigSource


class DynamicConfig:
    """The settings that are in effect, by the names of `server.properties`."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self._layers: dict[ConfigSource, dict[str, SettingValue]] = {
            ConfigSource.BROKER: {},
            ConfigSource.ALL_BROKERS: {},
        }
        """The layers of settings in their order of precedence."""

    def get(self, key: str) -> SettingValue:
        """KeyError for a key that is in no table."""
        return self.chain(key)[0].value

    def integer(self, key: str) -> int:
        value = self.get(key)
        assert isinstance(value, int), key
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        assert isinstance(value, bool), key
        return value

    def chain(self, key: str) -> list[SourcedValue]:
        """All values of a setting, in their order of precedence."""
        values = [
            SourcedValue(layer[key], source)
            for source, layer in self._layers.items()
            if key in layer
        ]
        if self.static.is_given(key):
            values.append(SourcedValue(self.static.get(key), ConfigSource.FILE))
        default = BY_BROKER_KEY[key].default
        if default is not None or not values:
            values.append(SourcedValue(default, ConfigSource.DEFAULT))
        return values

    def layer(self, source: ConfigSource) -> Mapping[str, SettingValue]:
        """The settings that stand for this broker, or for all."""
        return self._layers[source]

    def replace_layer(self, source: ConfigSource, stored: Mapping[str, str]) -> None:
        """Replaces the settings that ZooKeeper has for this broker, or for all."""
        before = self._layers[source]
        values: dict[str, SettingValue] = {}
        for key, text in stored.items():
            try:
                values[key] = live_setting(key).parse(text, key=key)
            except ConfigError as failure:
                log.error("setting of %s ignored: %s", source.name.lower(), failure)
        self._layers[source] = values
        try:
            check_relations(self)
        except ConfigError as failure:
            log.error("settings of %s not applied: %s", source.name.lower(), failure)
            self._layers[source] = before

    def check_layer(self, source: ConfigSource, values: Mapping[str, str]) -> None:
        """ConfigError when these would not go together with the other settings."""
        trial = DynamicConfig(self.static)
        trial._layers.update(self._layers)
        trial._layers[source] = {key: live_setting(key).parse(values[key]) for key in values}
        check_relations(trial)


def live_setting(key: str) -> Setting:
    """The broker's setting of that name. ConfigError when there is none that changes at run
    time."""
    if key in ALIASES:
        own = ALIASES[key][0]
        raise ConfigError(f"'{key}' is another name of '{own.broker_key}': set that one")
    setting = BY_BROKER_KEY.get(key)
    if setting is None:
        known = [row.broker_key for row in BY_BROKER_KEY.values() if row.changes_live]
        raise unknown_key_error(key, known, what="setting")
    if not setting.changes_live:
        raise ConfigError(
            f"'{key}' can't be changed at run time: change it in the broker's file and restart it"
        )
    return setting
