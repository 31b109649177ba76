"""The settings of one topic: its overrides over its broker's values.

Overrides are checked when they are set; stored ones that are impossible are an error too.

Source: R-TOOL1; the table is `core.settings.settings`.

The settings of topics on this broker: the broker's own defaults, overridden by those in
ZooKeeper for the topic.

A topic's settings are read before its first log is opened here. An invalid one counts as absent,
except for the schema of a typed topic: the previous one stays, or the producers and clients that
need it have to wait. Source: R-TOOL1.

When a topic's schema may be set: at its creation, and later only with versions appended.

Whether a topic is typed never changes, as its log would have batches of two kinds.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from storage_engine.broker.settings.config_store import ConfigEntity, ConfigStore, Gather
from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Scheduler
from storage_engine.core.replication.leader_epochs import NONE_THROTTLED, ThrottledReplicas
from storage_engine.core.settings.setting import Setting, SettingValue, unknown_key_error
from storage_engine.core.settings.settings import (
    BY_TOPIC_KEY,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
)
from storage_engine.core.typed.foreign_format import FORMAT_SETTING, ForeignFormat
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, schema_of
from storage_engine.core.typed.unreadable_schema import UnreadableSchema
from storage_engine.log.log_config import LogConfig

log = logging.getLogger(__name__)


class BrokerValues(Protocol):
    """A broker's settings for topics without overrides: from its file, or changed at run time."""

    def get(self, key: str) -> SettingValue: ...

    def integer(self, key: str) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of the partitions of a topic."""

    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    flush_before_ack: bool = False
    leader_throttled: ThrottledReplicas = NONE_THROTTLED
    follower_throttled: ThrottledReplicas = NONE_THROTTLED

    @classmethod
    def of(cls, broker: BrokerValues, overrides: Mapping[str, str]) -> "TopicConfig":
        """Raises ConfigError when an override is unknown or not valid."""
        values: dict[str, Any] = dict(topic_values(broker, overrides))
        return cls(
            log=_log_config(broker, values),
            min_insync_replicas=values["min.insync.replicas"],
            unclean_leader_election_enable=values["unclean.leader.election.enable"],
            flush_before_ack=values["flush.before.ack"],
            leader_throttled=ThrottledReplicas.of(values[LEADER_THROTTLED_REPLICAS]),
            follower_throttled=ThrottledReplicas.of(values[FOLLOWER_THROTTLED_REPLICAS]),
        )


def topic_values(broker: BrokerValues, overrides: Mapping[str, str]) -> dict[str, SettingValue]:
    """Every topic setting, by the topic's name for it."""
    given = parse_topic_overrides(overrides)
    return {
        name: given[name] if name in given else value_underneath(broker, setting)
        for name, setting in BY_TOPIC_KEY.items()
    }


def value_underneath(broker: BrokerValues, setting: Setting) -> SettingValue:
    """The value for topics that don't set it."""
    return broker.get(setting.broker_key) if setting.for_brokers else setting.default


def validate_topic_config(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides in their usual form (`TRUE` is `true`). ConfigError for an invalid one."""
    values = parse_topic_overrides(overrides)
    check_together(overrides)
    return {name: str(BY_TOPIC_KEY[name].format(value)) for name, value in values.items()}


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, SettingValue]:
    """Name -> value. Raises ConfigError for an unknown or invalid one."""
    result: dict[str, SettingValue] = {}
    for name, text in overrides.items():
        result[name] = topic_setting(name).parse(text)
    return result


def topic_setting(name: str) -> Setting:
    """Raises ConfigError, with the nearest name, when topics have no such setting."""
    if name not in BY_TOPIC_KEY:
        raise unknown_key_error(name, BY_TOPIC_KEY, what="topic setting")
    return BY_TOPIC_KEY[name]


def log_config_for(broker: BrokerValues, overrides: Mapping[str, str]) -> LogConfig:
    """The part of a topic's settings that the log needs."""
    return TopicConfig.of(broker, overrides).log


def check_together(overrides: Mapping[str, str]) -> None:
    """Raises ConfigError when a topic's own settings contradict each other. (Where they contradict
    the broker's, the smaller promise counts: records younger than the minimum lag stay.)"""
    values = parse_topic_overrides(overrides)
    least, most = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ConfigError(
            f"min.compaction.lag.ms={least}: must not be larger than max.compaction.lag.ms={most}"
        )


def _log_config(broker: BrokerValues, values: Mapping[str, Any]) -> LogConfig:
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        max_message_bytes=values["max.message.bytes"],
        message_timestamp_type=values["message.timestamp.type"],
        compression_type=values["compression.type"],
        message_timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        cleanup_policy=",".join(values["cleanup.policy"]),
        delete_retention_ms=values["delete.retention.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        producer_id_expiration_ms=broker.integer("producer.id.expiration.ms"),
        schema=None if values[SCHEMA_SETTING] is None else schema_of(values[SCHEMA_SETTING]),
        foreign_format=ForeignFormat(values[FORMAT_SETTING]),
    )


RETRY_MS = 500


class TopicConfigs:
    """Cache of topics' overrides."""

    def __init__(self, broker: BrokerValues, *, store: ConfigStore, scheduler: Scheduler) -> None:
        self._broker = broker
        self._store = store
        self._scheduler = scheduler
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._unreadable: dict[str, UnreadableSchema] = {}
        """Topics with an unreadable schema; the schemas of others are among their overrides."""

    def known(self) -> tuple[str, ...]:
        """The topics whose overrides are cached."""
        return tuple(self._overrides)

    def overrides(self, topic: str) -> Mapping[str, str] | None:
        """The overrides of a topic; None for a topic without a replica here."""
        return self._overrides.get(topic)

    def of(self, topic: str) -> TopicConfig:
        """The settings of a topic that `ensure` has read. An invalid override counts as absent."""
        config = TopicConfig.of(self._broker, self._overrides.get(topic, {}))
        schema = self._unreadable.get(topic)
        return config if schema is None else replace(config, log=replace(config.log, schema=schema))

    def unreadable_schema(self, topic: str) -> UnreadableSchema | None:
        """The reason why the schema of a topic with a replica here can't be read; None when it can,
        or there is none."""
        return self._unreadable.get(topic)

    def update(self, topic: str, overrides: Mapping[str, str]) -> bool:
        """Replace the overrides of a topic that this broker hosts; return whether they have
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
    """The stand-in for an unreadable schema among the overrides; None if it can be read, or there
    is none."""
    text = overrides.get(SCHEMA_SETTING)
    if text is not None:
        try:
            schema_of(text)
        except ConfigError as error:
            return UnreadableSchema(reason=str(error))
    return None


def possible_overrides(topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The valid overrides, without those that are unknown or invalid, which are logged."""
    possible = {}
    for name, text in overrides.items():
        try:
            topic_setting(name).parse(text)
        except ConfigError as failure:
            log.error("setting of topic %s ignored: %s", topic, failure)
        else:
            possible[name] = text
    return possible


_POLICY = "cleanup.policy"


def check_new_topic(broker: BrokerValues, settings: Mapping[str, str]) -> None:
    """Raises ConfigError when a new topic's settings contradict its schema."""
    _check_format(settings)
    _check_policy(broker, settings)


def _check_format(settings: Mapping[str, str]) -> None:
    form, text = settings.get(FORMAT_SETTING), settings.get(SCHEMA_SETTING)
    if form is None:
        return
    if text is None:
        raise ConfigError(
            f"{FORMAT_SETTING} is for typed topics, and this one has no schema: leave it out, or "
            "create the topic with a schema"
        )
    if form == ForeignFormat.AVRO:
        # The import is here: brokers without such topics save it.
        from storage_engine.core.typed.avro_text import avro_text

        schema = schema_of(text)
        try:
            avro_text(schema, schema.latest, "topic")
        except ConfigError as error:
            raise ConfigError(f"{FORMAT_SETTING}={form}: {error}") from None


def _check_policy(broker: BrokerValues, settings: Mapping[str, str]) -> None:
    text = settings.get(SCHEMA_SETTING)
    if text is not None and not schema_of(text).key and _compacts(broker, settings):
        raise ConfigError(
            f"{_POLICY}=compact needs a key, and the schema has none: name its key columns, or set "
            f"{_POLICY}=delete"
        )


def check_change(broker: BrokerValues, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises ConfigError for a change of a topic's settings that its schema forbids."""
    old, new = before.get(SCHEMA_SETTING), after.get(SCHEMA_SETTING)
    if (old, before.get(FORMAT_SETTING)) != (new, after.get(FORMAT_SETTING)) and (
        old is None or new is not None
    ):
        _check_format(after)
    if old == new:
        if new is not None and _compacts(broker, after) and not _compacts(broker, before):
            _check_policy(broker, after)
        return
    if old is None:
        raise ConfigError(
            f"{SCHEMA_SETTING}: a topic is typed from its creation on or never: create another "
            "topic"
        )
    if new is None:
        raise ConfigError(
            f"{SCHEMA_SETTING} can't be removed, as the log has rows by it. (AlterConfigs replaces "
            "all settings: name it as DescribeConfigs gives it, or use IncrementalAlterConfigs.)"
        )
    try:
        present = schema_of(old)
    except ConfigError:
        # Another program has written it. A readable schema is better.
        return
    try:
        present.check_successor(schema_of(new))
    except ConfigError as error:
        raise ConfigError(f"{SCHEMA_SETTING}: {error}") from None


def _compacts(broker: BrokerValues, settings: Mapping[str, str]) -> bool:
    policy = settings.get(_POLICY)
    if policy is None:
        value = value_underneath(broker, BY_TOPIC_KEY[_POLICY])
    else:
        try:
            value = parse_topic_overrides({_POLICY: policy})[_POLICY]
        except ConfigError:
            return False
    return isinstance(value, tuple) and "compact" in value
