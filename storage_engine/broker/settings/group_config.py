"""The settings that a group may have of its own, over this broker's `group.consumer.*`.

Each broker keeps those of all groups: a broker may become the coordinator of any of them, and
administrators alone set them. A value that has come out of the broker's bounds since it was stored
counts as the nearest one within. Source: KIP-848.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from storage_engine.broker.settings.topic_config import BrokerValues
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.setting import Setting, SettingValue, unknown_key_error
from storage_engine.core.settings.settings import BY_BROKER_KEY

log = logging.getLogger(__name__)

NOT_ENABLED = (
    "consumer groups need group.version 1: headrace features upgrade --feature group.version=1"
)
"""The refusal of a cluster whose features do not allow them yet."""

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


class _Bounds(NamedTuple):
    """The settings of brokers with the least and the greatest value of a group's setting."""

    least: str
    greatest: str


_BOUNDS = {
    SESSION_TIMEOUT: _Bounds(
        "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"
    ),
    HEARTBEAT_INTERVAL: _Bounds(
        "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"
    ),
}

GROUP_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        name: replace(BY_BROKER_KEY[f"group.{name}"], name=name, broker_name=f"group.{name}")
        for name in _BOUNDS
    }
)
"""The settings of groups; the broker's value, which counts for groups without one, has another
name."""


class OwnGroupTimes(NamedTuple):
    """The settings that a group has of its own; None: it has the broker's."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None


def group_setting(name: str) -> Setting:
    """Raises ConfigError, with the nearest name, when groups have no such setting."""
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        raise unknown_key_error(name, GROUP_SETTINGS, what="group setting")
    return setting


class GroupRules:
    """The rules for settings of a group (`config_alteration.Rules`)."""

    def __init__(self, broker: BrokerValues) -> None:
        self._broker = broker

    def setting(self, name: str) -> Setting:
        return group_setting(name)

    def underneath(self, setting: Setting) -> SettingValue:
        return self._broker.get(setting.broker_key)

    def check_together(self, values: Mapping[str, str]) -> None:
        given = {name: _number(name, text) for name, text in values.items()}
        for name, value in given.items():
            least, greatest = _BOUNDS[name]
            low, high = self._broker.integer(least), self._broker.integer(greatest)
            if not low <= value <= high:
                raise ConfigError(
                    f"{name}={value}: must be from {low} ({least}) to {high} ({greatest})"
                )
        session_ms, interval_ms = (
            given.get(name, self._broker.integer(f"group.{name}")) for name in _BOUNDS
        )
        if given and session_ms <= interval_ms:
            raise ConfigError(
                f"{SESSION_TIMEOUT}={session_ms}: must be above {HEARTBEAT_INTERVAL}={interval_ms}"
            )

    def check_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Allow every change: a coordinator takes new times with the next heartbeats."""


class GroupConfigs:
    """The settings of all groups that have some."""

    def __init__(self, broker: BrokerValues) -> None:
        self._broker = broker
        self._own: dict[str, Mapping[str, int]] = {}
        self.on_changed: Callable[[str], None] = lambda _group: None
        """Called with the id of each group whose settings have changed."""

    def names(self) -> list[str]:
        """The groups with settings of their own, in order."""
        return sorted(self._own)

    def of(self, group_id: str) -> OwnGroupTimes:
        own = self._own.get(group_id, {})
        session_ms, interval_ms = (self._within_bounds(name, own.get(name)) for name in _BOUNDS)
        return OwnGroupTimes(session_ms, interval_ms)

    def take(self, group_id: str, stored: Mapping[str, str]) -> None:
        """Replace the settings of a group; what can't be read is logged and counts as absent."""
        own = possible_of_group(group_id, stored)
        before = self._own.pop(group_id, {})
        if own:
            self._own[group_id] = own
        if own != before:
            log.info("settings applied of group=%r settings=%s", group_id, own)
            self.on_changed(group_id)

    def _within_bounds(self, name: str, value: int | None) -> int | None:
        if value is None:
            return None
        least, greatest = _BOUNDS[name]
        return max(self._broker.integer(least), min(value, self._broker.integer(greatest)))


def possible_of_group(group_id: str, stored: Mapping[str, str]) -> dict[str, int]:
    """Return the valid settings of a group, without those that are unknown or invalid, which are
    logged."""
    possible = {}
    for name, text in stored.items():
        try:
            group_setting(name)
            possible[name] = _number(name, text)
        except ConfigError as failure:
            log.error("setting of group %r ignored: %s", group_id, failure)
    return possible


def _number(name: str, text: str) -> int:
    value = GROUP_SETTINGS[name].parse(text, key=name)
    assert isinstance(value, int)
    return value
