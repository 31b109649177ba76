"""The settings of a topic or broker after a change: pure functions.

Only the settings that the change names are checked, so that a stored value that has become invalid
hinders no other change and can be removed. Source: KIP-339 (operations), KIP-226 (brokers).
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from storage_engine.broker.settings.dynamic_config import DynamicConfig, live_setting
from storage_engine.broker.settings.topic_config import (
    check_change,
    check_together,
    topic_setting,
    value_underneath,
)
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.core.settings.setting import Setting, SettingType, SettingValue


class Operation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs, by the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A setting to be changed, and its new value."""

    name: str
    operation: int
    value: str | None


class Rules(Protocol):
    """The rules for settings of one kind of entity."""

    def setting(self, name: str) -> Setting:
        """Raises ConfigError when there is no such setting, or it may not be set."""
        ...

    def underneath(self, setting: Setting) -> SettingValue:
        """The value in effect where the entity does not set it."""
        ...

    def check_together(self, values: Mapping[str, str]) -> None:
        """Raises ConfigError when settings of the entity contradict each other."""
        ...

    def check_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Raises ConfigError when the present settings forbid the change."""
        ...


class TopicRules:
    """The rules for settings of a topic."""

    def __init__(self, broker: DynamicConfig) -> None:
        self._broker = broker

    def setting(self, name: str) -> Setting:
        return topic_setting(name)

    def underneath(self, setting: Setting) -> SettingValue:
        return value_underneath(self._broker, setting)

    def check_together(self, values: Mapping[str, str]) -> None:
        check_together(values)

    def check_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        check_change(self._broker, before, after)


class BrokerRules:
    """The rules for settings of one broker or of all; `broker` is the one that got the request.
    Other brokers check the settings themselves when they read them."""

    def __init__(self, broker: DynamicConfig, source: ConfigSource, *, is_own: bool) -> None:
        self._broker = broker
        self._source = source
        self._is_own = is_own

    def setting(self, name: str) -> Setting:
        return live_setting(name, self._source)

    def underneath(self, setting: Setting) -> SettingValue:
        return next(
            value
            for value, source in self._broker.chain(setting.broker_key)
            if source > self._source
        )

    def check_together(self, values: Mapping[str, str]) -> None:
        if self._is_own:
            self._broker.check_layer(self._source, values)

    def check_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Allow every change of a broker's settings."""


def altered(current: Mapping[str, str], changes: Sequence[Change], rules: Rules) -> dict[str, str]:
    """The settings after an IncrementalAlterConfigs. Raises KafkaError."""
    return _changed(current, dict(current), changes, rules)


def replaced(
    current: Mapping[str, str], values: Sequence[tuple[str, str | None]], rules: Rules
) -> dict[str, str]:
    """The settings after an AlterConfigs, which names all settings to keep. Raises KafkaError."""
    changes = [Change(name, Operation.SET, value) for name, value in values]
    return _changed(current, {}, changes, rules)


def _changed(
    current: Mapping[str, str], result: dict[str, str], changes: Sequence[Change], rules: Rules
) -> dict[str, str]:
    """Make the changes to `result`, which replaces `current`. Raises KafkaError."""
    _refuse_repeated(change.name for change in changes)
    try:
        for change in changes:
            _apply(result, change, rules)
        _check_together(result, changes, rules)
        rules.check_change(current, result)
    except ConfigError as failure:
        raise KafkaError(str(failure), ErrorCode.INVALID_CONFIG) from None
    return result


def _apply(result: dict[str, str], change: Change, rules: Rules) -> None:
    name = change.name
    if change.operation == Operation.DELETE:
        if name not in result:
            rules.setting(name)
        result.pop(name, None)
        return
    setting = rules.setting(name)
    if change.operation not in set(Operation):
        raise KafkaError(
            f"{name}: there is no operation {change.operation}", ErrorCode.INVALID_REQUEST
        )
    if change.value is None:
        raise KafkaError(f"{name}: no value is given", ErrorCode.INVALID_REQUEST)
    value = setting.parse(change.value, key=name)
    if change.operation != Operation.SET:
        value = _list_changed(result, change, setting, value, rules)
    result[name] = setting.format(value) or ""


def _list_changed(
    result: Mapping[str, str],
    change: Change,
    setting: Setting,
    items: SettingValue,
    rules: Rules,
) -> SettingValue:
    if setting.type is not SettingType.LIST:
        raise ConfigError(f"{change.name} is not a list: it can only be set or deleted")
    assert isinstance(items, tuple)
    if change.name in result:
        present = setting.parse(result[change.name], key=change.name)
    else:
        present = rules.underneath(setting)
    assert present is None or isinstance(present, tuple)
    # Each item once, so that a change that is repeated after a lost answer changes nothing.
    kept = dict.fromkeys(present or ())
    if change.operation == Operation.APPEND:
        return tuple(kept | dict.fromkeys(items))
    return tuple(item for item in kept if item not in items)


def _check_together(result: Mapping[str, str], changes: Sequence[Change], rules: Rules) -> None:
    named = {change.name for change in changes}
    possible: dict[str, str] = {}
    for name, text in result.items():
        try:
            rules.setting(name).parse(text, key=name)
        except ConfigError:
            if name in named:
                raise
            continue
        possible[name] = text
    rules.check_together(possible)


def _refuse_repeated(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise KafkaError(f"'{name}' is named twice", ErrorCode.INVALID_REQUEST)
        seen.add(name)
