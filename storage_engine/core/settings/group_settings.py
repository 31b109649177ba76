"""The part of the table of settings that is about consumer groups."""

from storage_engine.core.settings.setting import INT_MAX, Setting, SettingType

GROUP_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="offsets.topic.replication.factor",
        type=SettingType.INT,
        default=3,
        minimum=1,
        maximum=32767,
        unit="replicas",
        doc="The topic __consumer_offsets is created with so many replicas.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="The topic __consumer_offsets is created with so many partitions, for good.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="Small segments of that topic are soon compacted, and soon read at a failover.",
    ),
    Setting(
        name="offsets.retention.minutes",
        type=SettingType.INT,
        default=10_080,
        minimum=1,
        unit="minutes",
        doc="Offsets are deleted when their group has had no members for so long.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=1,
        unit="ms",
        doc="The broker looks this often for expired offsets, and for groups without offsets.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        type=SettingType.INT,
        default=5_000,
        minimum=1,
        unit="ms",
        doc="A commit of offsets waits so long for the replicas; then it has failed.",
    ),
    Setting(
        name="offset.metadata.max.bytes",
        type=SettingType.INT,
        default=4_096,
        minimum=0,
        maximum=32_767,  # ours: what a string of the record can hold
        unit="bytes",
        doc="A client may store so much metadata with an offset at most.",
    ),
    Setting(
        name="group.initial.rebalance.delay.ms",
        type=SettingType.INT,
        default=3_000,
        minimum=0,
        unit="ms",
        doc="A group waits so long for further members after the first one has joined.",
    ),
    Setting(
        name="group.min.session.timeout.ms",
        type=SettingType.INT,
        default=6_000,
        minimum=1,
        unit="ms",
        doc="A member may not ask for a shorter session timeout.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        type=SettingType.INT,
        default=1_800_000,
        minimum=1,
        unit="ms",
        doc="A member may not ask for a longer session timeout.",
    ),
    Setting(
        name="group.max.size",
        type=SettingType.INT,
        default=INT_MAX,
        minimum=1,
        unit="members",
        doc="A group may have so many members.",
    ),
)
