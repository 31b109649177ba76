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
        doc="The number of replicas that the topic __consumer_offsets is created with.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="The number of partitions of the topic __consumer_offsets. It can't be changed later.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="The segment size of __consumer_offsets; small segments are compacted and loaded "
        "sooner.",
    ),
    Setting(
        name="offsets.retention.minutes",
        type=SettingType.INT,
        default=10_080,
        minimum=1,
        unit="minutes",
        doc="Committed offsets are deleted when their group has had no members for this long.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=1,
        unit="ms",
        doc="How often the broker looks for expired offsets, and for groups without offsets.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        type=SettingType.INT,
        default=5_000,
        minimum=1,
        unit="ms",
        doc="An offset commit fails when the replicas have not stored it within this time.",
    ),
    Setting(
        name="offset.metadata.max.bytes",
        type=SettingType.INT,
        default=4_096,
        minimum=0,
        maximum=32_767,  # ours: what a string of the record can hold
        unit="bytes",
        doc="The most metadata that a client may store with a committed offset.",
    ),
    Setting(
        name="group.initial.rebalance.delay.ms",
        type=SettingType.INT,
        default=3_000,
        minimum=0,
        unit="ms",
        doc="How long a new group waits for more members before its first rebalance.",
    ),
    Setting(
        name="group.min.session.timeout.ms",
        type=SettingType.INT,
        default=6_000,
        minimum=1,
        unit="ms",
        doc="The shortest session timeout that a group member may ask for.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        type=SettingType.INT,
        default=1_800_000,
        minimum=1,
        unit="ms",
        doc="The longest session timeout that a group member may ask for.",
    ),
    Setting(
        name="group.max.size",
        type=SettingType.INT,
        default=INT_MAX,
        minimum=1,
        unit="members",
        doc="The most members that a group may have.",
    ),
)
