"""The settings that a topic may override, with their names in `server.properties`.

Rule: Kafka's names, types and defaults; what we do not do is not in the table.

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
        doc="With fewer in sync, a produce with acks=all is refused.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default=False,
        scope=Scope.BOTH,
        doc="When no replica in sync is left, lead with one that is not: records may be lost.",
    ),
    Setting(
        name=LEADER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="Leaders that send only so much to replicas that are not in sync as the rate says.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_REPLICAS,
        type=SettingType.LIST,
        default=(),
        item_pattern=r"\*|[0-9]+:[0-9]+",
        form="PARTITION:BROKER, or *",
        scope=Scope.BOTH,
        doc="Followers that take only so much as the rate says until they are in sync.",
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
        doc="The largest record batch that is taken, compressed as it comes.",
    ),
    Setting(
        name="message.timestamp.type",
        broker_name="log.message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        scope=Scope.BOTH,
        doc="Whose clock stamps the records: the producer's or the leader's.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        broker_name="log.message.timestamp.before.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="A batch is refused whose first or newest record is older than this, CreateTime given.",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        broker_name="log.message.timestamp.after.max.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="A batch is refused whose newest record is further ahead than this, CreateTime given.",
    ),
    Setting(
        name="compression.type",
        type=SettingType.STRING,
        default="producer",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        scope=Scope.BOTH,
        doc="How batches are stored: as their producer has compressed them, or anew by the leader.",
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
        doc="A segment file is followed by a new one before it becomes larger.",
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
        doc="A segment is followed by a new one at this age, so that retention can delete it.",
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
        doc="Up to so much is taken off segment.ms at random, against all rolling at once.",
    ),
    Setting(
        name="segment.index.bytes",
        broker_name="log.index.size.max.bytes",
        type=SettingType.INT,
        default=10 << 20,
        minimum=4,
        scope=Scope.BOTH,
        unit="bytes",
        doc="The largest index of a segment; a full one rolls the segment.",
    ),
    Setting(
        name="index.interval.bytes",
        broker_name="log.index.interval.bytes",
        type=SettingType.INT,
        default=4096,
        minimum=0,
        scope=Scope.BOTH,
        unit="bytes",
        doc="An index entry for every so many bytes of log.",
    ),
    # ---- retention ----
    Setting(
        name="cleanup.policy",
        broker_name="log.cleanup.policy",
        type=SettingType.LIST,
        default=("delete",),
        choices=("delete", "compact"),
        scope=Scope.BOTH,
        doc="What becomes of old segments: deleted by age and size, compacted by key, or both.",
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
        doc="Segments whose newest record is older are deleted; -1: never.",
    ),
    Setting(
        name="retention.bytes",
        broker_name="log.retention.bytes",
        type=SettingType.LONG,
        default=-1,
        minimum=-1,
        scope=Scope.BOTH,
        unit="bytes",
        doc="Per partition: the oldest segments beyond this size are deleted; -1: no limit.",
    ),
    Setting(
        name="file.delete.delay.ms",
        broker_name="log.segment.delete.delay.ms",
        type=SettingType.LONG,
        default=_MINUTE_MS,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="How long a deleted segment's files stay, for readers under way.",
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
        doc="The share of a log not yet compacted from which on compaction is worth it.",
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
        doc="Records older than this are compacted, however small their share of the log.",
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
        doc="Flush to disk after so many records; replication is the usual protection.",
    ),
    Setting(
        name="flush.ms",
        broker_name="log.flush.interval.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        scope=Scope.BOTH,
        unit="ms",
        doc="Flush to disk what is older than this.",
    ),
    Setting(
        name="flush.before.ack",  # ours
        type=SettingType.BOOLEAN,
        default=False,
        scope=Scope.BOTH,
        doc="Acknowledge only what each in-sync replica has flushed: it outlives power failures.",
    ),
)
"""Every row is of scope BOTH: a broker has a value of it for topics that have none."""
