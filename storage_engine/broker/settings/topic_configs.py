"""The settings of topics on this broker: the broker's own defaults, overridden by those in
ZooKeeper for the topic.

A topic's settings are read before its first log is opened here. One that is impossible counts as
absent, but for the schema of a typed topic: that one stays what it was, or makes producers and
clients wait that need it. Source: R-TOOL1.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from storage_engine.broker.settings.config_entity import ConfigEntity
from storage_engine.broker.settings.config_store import ConfigStore
from storage_engine.broker.settings.gather import Gather
from storage_engine.broker.settings.topic_config import BrokerValues, TopicConfig, topic_setting
from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Scheduler
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, schema_of
from storage_engine.core.typed.unreadable_schema import UnreadableSchema

log = logging.getLogger(__name__)

RETRY_MS = 500


class TopicConfigs:
    """Cache of topics' overrides."""

    def __init__(self, broker: BrokerValues, *, store: ConfigStore, scheduler: Scheduler) -> None:
        self._broker = broker
        self._store = store
        self._scheduler = scheduler
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._unreadable: dict[str, UnreadableSchema] = {}
        """By topic; of others the schema is among the overrides, if they have one."""

    def known(self) -> tuple[str, ...]:
        """Topics whose overrides are kept here."""
        return tuple(self._overrides)

    def overrides(self, topic: str) -> Mapping[str, str] | None:
        """What a topic sets itself; None for a topic without a replica here."""
        return self._overrides.get(topic)

    def of(self, topic: str) -> TopicConfig:
        """Settings of a topic that `ensure` has read. An impossible override counts as absent."""
        config = TopicConfig.of(self._broker, self._overrides.get(topic, {}))
        schema = self._unreadable.get(topic)
        return config if schema is None else replace(config, log=replace(config.log, schema=schema))

    def unreadable_schema(self, topic: str) -> UnreadableSchema | None:
        """Why the schema of a topic with a replica here can't be read; None when it can, or there
        is none."""
        return self._unreadable.get(topic)

    def update(self, topic: str, overrides: Mapping[str, str]) -> bool:
        """Replaces the overrides of a topic that this broker hosts; returns whether they have
        changed."""
        if topic not in self._overrides:
            return False
        before = self._overrides[topic]
        self._take(topic, overrides)
        return before != self._overrides[topic]

    def forget(self, topic: str) -> None:
        self._overrides.pop(topic, None)
        self._unreadable.pop(topic, None)

    def ensure(self, topics: Iterable[str], done: Callable[[], None]) -> None:
        """Read the overrides of topics that are not known yet, until it succeeds; then `done`."""
        missing = [topic for topic in dict.fromkeys(topics) if topic not in self._overrides]
        gather = Gather(len(missing), done)
        for topic in missing:
            self._read(topic, gather.one)

    def _read(self, topic: str, done: Callable[[], None]) -> None:
        def on_read(overrides: Mapping[str, str] | None) -> None:
            if overrides is None:
                self._scheduler.call_later(RETRY_MS, lambda: self._read(topic, done))
                return
            self._take(topic, overrides)
            done()

        self._store.read(ConfigEntity.topic(topic), on_read)

    def _take(self, topic: str, overrides: Mapping[str, str]) -> None:
        possible = possible_overrides(topic, overrides)
        unreadable = unreadable_schema(overrides)
        former = self._overrides.get(topic, {}).get(SCHEMA_SETTING)
        if unreadable is not None and former is not None:
            possible[SCHEMA_SETTING] = former
        elif unreadable is not None:
            self._unreadable[topic] = unreadable
        else:
            self._unreadable.pop(topic, None)
        self._overrides[topic] = possible


def unreadable_schema(overrides: Mapping[str, str]) -> UnreadableSchema | None:
    """What stands for the schema among a topic's overrides; None when it can be read, or there is
    none."""
    text = overrides.get(SCHEMA_SETTING)
    if text is not None:
        try:
            schema_of(text)
        except ConfigError as error:
            return UnreadableSchema(reason=str(error))
    return None


def possible_overrides(topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Drops overrides that are unknown or not possible; the others take effect all the same."""
    possible = {}
    for name, text in overrides.items():
        try:
            topic_setting(name).parse(text)
        except ConfigError as failure:
            log.error("setting of topic %s ignored: %s", topic, failure)
        else:
            possible[name] = text
    return possible
