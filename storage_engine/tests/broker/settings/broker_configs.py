"""Configurations of brokers, with the settings that no broker does without."""

from collections.abc import Mapping

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.errors import ConfigError

NEEDED = {"broker.id": "7", "log.dirs": "/data", "zookeeper.connect": "zk:2181"}


def config(given: Mapping[str, str] | None = None, **settings: str) -> BrokerConfig:
    """The needed settings, those `given`, and others by names with `_` for `.` and `__` for `-`."""
    named = {key.replace("__", "-").replace("_", "."): text for key, text in settings.items()}
    return BrokerConfig.from_mapping({**NEEDED, **(given or {}), **named})


def refusal(given: Mapping[str, str] | None = None, **settings: str) -> str:
    """The one line that says why such a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        config(given, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)
