"""The settings that a topic may override, with their names in `server.properties`.

Names, types and defaults are Kafka's; those without an effect are in `kafka_settings`.

Source: R-TOOL1, the settings of Kafka's topics.
"""

from storage_engine.core.settings.setting import (
    LONG_MAX,
    Alias,
    Scope,
    Setting,
    SettingType,
)
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, usual_form

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS

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
        doc="Writes with acks=all are refused while fewer replicas than this are in sync.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default=False,
        scope=Scope.BOTH,
        doc="A replica that is not in sync may become leader when no other is left; this can "
        "lose records.",
    ),
    Setting(
        name=LEADER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="The replicas to which leader.replication.throttled.rate applies: "
        "PARTITION:BROKER, or *.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="The replicas to which follower.replication.throttled.rate applies: "
        "PARTITION:BROKER, or *.",
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
        doc="The largest record batch, counted after its compression. A larger one is refused.",
    ),
    Setting(
        name="message.timestamp.type",
        broker_name="log.message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        scope=Scope.BOTH,
        doc="Where timestamps come from: the producer (CreateTime) or the leader's clock "
        "(LogAppendTime).",
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
        doc="The compression of stored batches: the producer's, or one that the leader "
        "compresses with.",
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
        doc="The largest size of a segment. A new segment begins before it would be exceeded.",
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
        doc="The age at which a segment is closed and a new one begins, so that retention can "
        "delete it.",
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
        doc="segment.ms is shortened at random by up to this, so that segments do not all "
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
        doc="The largest size of an index. A new segment begins when the index is full.",
    ),
    Setting(
        name="index.interval.bytes",
        broker_name="log.index.interval.bytes",
        type=SettingType.INT,
        default=4096,
        minimum=0,
        scope=Scope.BOTH,
        unit="bytes",
        doc="The number of bytes of the log for each entry of its index.",
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
        doc="How long the files of a deleted segment are kept for readers that still use them.",
    ),
    Setting(
        name="delete.retention.ms",
        broker_name="log.cleaner.delete.retention.ms",
        type=SettingType.LONG,
        default=_DAY_MS,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="How long compaction keeps the tombstone of a deleted key.",
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        broker_name="log.cleaner.min.cleanable.ratio",
        type=SettingType.DOUBLE,
        default=0.5,
        minimum=0,
        maximum=1,
        scope=Scope.BOTH,
        doc="A log is compacted when the uncompacted share of it reaches this ratio.",
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
        doc="Records older than this are compacted, even when min.cleanable.dirty.ratio is "
        "not reached.",
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
        doc="A log is flushed to disk after this many records; replication is the usual "
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
        doc="Records are acknowledged once every in-sync replica has flushed them, against "
        "power failures.",
    ),
    # ---- columns ----
    Setting(
        name=SCHEMA_SETTING,  # ours
        type=SettingType.STRING,
        scope=Scope.TOPIC,
        form="a schema as JSON",
        read=usual_form,
        doc="The columns of a typed topic, in all versions; a topic without it has none.",
    ),
)
"""Topics without a value of their own have the broker's, where the scope is BOTH."""
