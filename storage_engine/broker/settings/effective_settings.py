"""The values that the settings of a topic have, and where each comes from."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.setting import Setting
from storage_engine.core.settings.settings import BY_TOPIC_KEY


class EffectiveSetting(NamedTuple):
    """One setting of a topic, in the form of a file of settings."""

    setting: Setting
    name: str
    value: str | None
    source: ConfigSource


def effective_settings(config: DynamicConfig, own: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    """All settings of a topic that has these of its own, and the broker's or the default otherwise.
    The schema of a topic that has none is left out: clients compare what topics have."""
    for name, setting in BY_TOPIC_KEY.items():
        if name in own:
            yield EffectiveSetting(setting, name, own[name], ConfigSource.TOPIC)
        elif setting.for_brokers:
            value, source = config.chain(setting.broker_key)[0]
            yield EffectiveSetting(setting, name, setting.format(value), source)
        elif setting.default is not None:
            default = setting.format(setting.default)
            yield EffectiveSetting(setting, name, default, ConfigSource.DEFAULT)
