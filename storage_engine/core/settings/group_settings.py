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
        doc="Replicas of the topic that keeps the offsets of consumer groups.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="Partitions of the topic that keeps groups' offsets; fixed once it is there.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="segment.bytes of that topic: small ones are compacted, and read at a failover, soon.",
    ),
    Setting(
        name="offsets.retention.minutes",
        type=SettingType.INT,
        default=10_080,
        minimum=1,
        unit="minutes",
        doc="Offsets are forgotten once their group has had no members for so long.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=1,
        unit="ms",
        doc="How often offsets are looked for whose time is over, and groups without any.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        type=SettingType.INT,
        default=5_000,
        minimum=1,
        unit="ms",
        doc="How long a commit of offsets waits for the replicas before its client is told so.",
    ),
    Setting(
        name="offset.metadata.max.bytes",
        type=SettingType.INT,
        default=4_096,
        minimum=0,
        maximum=32_767,  # ours: what a string of the record can hold
        unit="bytes",
        doc="The most that a client may store beside an offset.",
    ),
    Setting(
        name="group.initial.rebalance.delay.ms",
        type=SettingType.INT,
        default=3_000,
        minimum=0,
        unit="ms",
        doc="How long a group without members waits for more than the first one.",
    ),
    Setting(
        name="group.min.session.timeout.ms",
        type=SettingType.INT,
        default=6_000,
        minimum=1,
        unit="ms",
        doc="The shortest session timeout that a member may ask for.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        type=SettingType.INT,
        default=1_800_000,
        minimum=1,
        unit="ms",
        doc="The longest session timeout that a member may ask for.",
    ),
    Setting(
        name="group.max.size",
        type=SettingType.INT,
        default=INT_MAX,
        minimum=1,
        unit="members",
        doc="Members that a group may have.",
    ),
)
