"""The settings that a topic may override, with their names in `server.properties`.

Rule: Kafka's names, types and defaults; settings without an effect are not in the table.

Source: R-TOOL1, the settings of Kafka's topics.
"""

from storage_engine.core.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Alias,
    Scope,
    Setting,
    SettingType,
)

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS

MAX_SEGMENT_BYTES = INT_MAX
"""Positions in an offset index are int32."""

LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"

TOPIC_SETTINGS: tuple[Setting, ...] = (
    # ---- replication ----
    Setting(
        name="min.insync.replicas",
        type=SettingType.INT,
        default=1,
        minimum=1,
        scope=Scope.BOTH,
        unit="replicas",
        doc="A produce with acks=all is refused when fewer replicas are in sync.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default=False,
        scope=Scope.BOTH,
        doc="A replica that is not in sync may lead when no other is left; records may be "
        "lost then.",
    ),
    Setting(
        name=LEADER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="These leaders obey the rate when they send to replicas that are not in sync.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="These followers obey the rate until they are in sync.",
    ),
    # ---- records ----
    Setting(
        name="max.message.bytes",
        broker_name="message.max.bytes",
        type=SettingType.INT,
        default=1_048_588,
        minimum=0,
        scope=Scope.BOTH,
        unit="bytes",
        doc="A larger record batch is refused; it counts as it comes, compressed.",
    ),
    Setting(
        name="message.timestamp.type",
        broker_name="log.message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        scope=Scope.BOTH,
        doc="The producer's clock (CreateTime) or the leader's (LogAppendTime) stamps the records.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        broker_name="log.message.timestamp.before.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="With CreateTime, a batch is refused when its first or newest record is older "
        "than this.",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        broker_name="log.message.timestamp.after.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="With CreateTime, a batch is refused when its newest record is further ahead "
        "than this.",
    ),
    Setting(
        name="compression.type",
        type=SettingType.STRING,
        default="producer",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        scope=Scope.BOTH,
        doc="Batches are stored as their producer has compressed them, or anew by the leader.",
    ),
    # ---- segments ----
    Setting(
        name="segment.bytes",
        broker_name="log.segment.bytes",
        type=SettingType.INT,
        default=1 << 30,
        minimum=14,
        scope=Scope.BOTH,
        unit="bytes",
        doc="A new segment begins before one becomes larger than this.",
    ),
    Setting(
        name="segment.ms",
        broker_name="log.roll.ms",
        aliases=(Alias(name="log.roll.hours", factor=_HOUR_MS, unit="hours"),),
        type=SettingType.LONG,
        default=_WEEK_MS,
        minimum=1,
        scope=Scope.BOTH,
        unit="ms",
        doc="A new segment begins when one has this age, so that retention can delete it.",
    ),
    Setting(
        name="segment.jitter.ms",
        broker_name="log.roll.jitter.ms",
        aliases=(Alias(name="log.roll.jitter.hours", factor=_HOUR_MS, unit="hours"),),
        type=SettingType.LONG,
        default=0,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="segment.ms is shortened by up to so much at random, so that not all segments "
        "roll at once.",
    ),
    Setting(
        name="segment.index.bytes",
        broker_name="log.index.size.max.bytes",
        type=SettingType.INT,
        default=10 << 20,
        minimum=4,
        scope=Scope.BOTH,
        unit="bytes",
        doc="An index has this size at most; a full one rolls its segment.",
    ),
    Setting(
        name="index.interval.bytes",
        broker_name="log.index.interval.bytes",
        type=SettingType.INT,
        default=4096,
        minimum=0,
        scope=Scope.BOTH,
        unit="bytes",
        doc="An index has one entry for so many bytes of the log.",
    ),
    # ---- retention ----
    Setting(
        name="cleanup.policy",
        broker_name="log.cleanup.policy",
        type=SettingType.LIST,
        default=("delete",),
        choices=("delete", "compact"),
        scope=Scope.BOTH,
        doc="Old segments are deleted by age and size, compacted by key, or both.",
    ),
    Setting(
        name="retention.ms",
        broker_name="log.retention.ms",
        aliases=(
            Alias(name="log.retention.minutes", factor=_MINUTE_MS, unit="minutes"),
            Alias(name="log.retention.hours", factor=_HOUR_MS, unit="hours"),
        ),
        type=SettingType.LONG,
        default=_WEEK_MS,
        minimum=-1,
        scope=Scope.BOTH,
        unit="ms",
        doc="A segment is deleted when its newest record is older than this; with -1 it never is.",
    ),
    Setting(
        name="retention.bytes",
        broker_name="log.retention.bytes",
        type=SettingType.LONG,
        default=-1,
        minimum=-1,
        scope=Scope.BOTH,
        unit="bytes",
        doc="The oldest segments of a partition are deleted beyond this size; -1 sets no limit.",
    ),
    Setting(
        name="file.delete.delay.ms",
        broker_name="log.segment.delete.delay.ms",
        type=SettingType.LONG,
        default=_MINUTE_MS,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="The files of a deleted segment stay for so long, for readers that are under way.",
    ),
    Setting(
        name="delete.retention.ms",
        broker_name="log.cleaner.delete.retention.ms",
        type=SettingType.LONG,
        default=_DAY_MS,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="Compaction keeps the tombstone of a deleted key for so long.",
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        broker_name="log.cleaner.min.cleanable.ratio",
        type=SettingType.DOUBLE,
        default=0.5,
        minimum=0,
        maximum=1,
        scope=Scope.BOTH,
        doc="A log is compacted once this share of it is not compacted.",
    ),
    Setting(
        name="min.compaction.lag.ms",
        broker_name="log.cleaner.min.compaction.lag.ms",
        type=SettingType.LONG,
        default=0,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="Records younger than this are not compacted.",
    ),
    Setting(
        name="max.compaction.lag.ms",
        broker_name="log.cleaner.max.compaction.lag.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        scope=Scope.BOTH,
        unit="ms",
        doc="Records older than this are compacted, however small their share of the log is.",
    ),
    # ---- flush ----
    Setting(
        name="flush.messages",
        broker_name="log.flush.interval.messages",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        scope=Scope.BOTH,
        unit="records",
        doc="The log is flushed to disk after so many records; replication is the usual "
        "protection.",
    ),
    Setting(
        name="flush.ms",
        broker_name="log.flush.interval.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="Records that are older than this are flushed to disk.",
    ),
    Setting(
        name="flush.before.ack",  # ours
        type=SettingType.BOOLEAN,
        default=False,
        scope=Scope.BOTH,
        doc="A record is acknowledged when each in-sync replica has flushed it: it survives "
        "power failures.",
    ),
)
"""Every row has the scope BOTH: topics without a value of their own have the broker's."""
