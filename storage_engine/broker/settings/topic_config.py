"""The settings of one topic: its overrides over its broker's values.

Overrides are checked when they are set; stored ones that are impossible are an error too.

Source: R-TOOL1; the table is `core.settings.settings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from storage_engine.core.errors import ConfigError
from storage_engine.core.replication.replication_quota import NONE_THROTTLED, ThrottledReplicas
from storage_engine.core.settings.setting import Setting, SettingValue, unknown_key_error
from storage_engine.core.settings.settings import (
    BY_TOPIC_KEY,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
)
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, schema_of
from storage_engine.log.log_config import LogConfig


class BrokerValues(Protocol):
    """A broker's settings for topics without overrides: of its file, or as changed at run time."""

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
        """ConfigError when an override is unknown or impossible."""
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
    """Every topic setting by the topic's name for it."""
    given = parse_topic_overrides(overrides)
    return {
        name: given[name] if name in given else value_underneath(broker, setting)
        for name, setting in BY_TOPIC_KEY.items()
    }


def value_underneath(broker: BrokerValues, setting: Setting) -> SettingValue:
    """The value for topics that set nothing."""
    return broker.get(setting.broker_key) if setting.for_brokers else setting.default


def validate_topic_config(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides in their usual form (`TRUE` is `true`); ConfigError for an impossible one."""
    values = parse_topic_overrides(overrides)
    check_together(overrides)
    return {name: str(BY_TOPIC_KEY[name].format(value)) for name, value in values.items()}


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, SettingValue]:
    """Name -> value; ConfigError for an unknown or impossible one."""
    result: dict[str, SettingValue] = {}
    for name, text in overrides.items():
        result[name] = topic_setting(name).parse(text)
    return result


def topic_setting(name: str) -> Setting:
    """ConfigError, with the nearest name, when topics have none of that name."""
    if name not in BY_TOPIC_KEY:
        raise unknown_key_error(name, BY_TOPIC_KEY, what="topic setting")
    return BY_TOPIC_KEY[name]


def log_config_for(broker: BrokerValues, overrides: Mapping[str, str]) -> LogConfig:
    """The part of the settings that the log itself needs."""
    return TopicConfig.of(broker, overrides).log


def check_together(overrides: Mapping[str, str]) -> None:
    """ConfigError when a topic's own settings contradict each other. (Where they contradict the
    broker's, the smaller promise counts: records younger than the minimum lag stay.)
    """
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
    )
