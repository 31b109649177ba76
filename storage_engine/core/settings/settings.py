"""The table of all settings. No other module names a setting's default or range.

Names, types and defaults are Kafka's; a row whose default differs says so in its comment. Settings
of Kafka that have no effect here are those of `kafka_settings`.
"""

from storage_engine.core.settings.access_settings import ACCESS_SETTINGS
from storage_engine.core.settings.failover_settings import FAILOVER_SETTINGS
from storage_engine.core.settings.group_settings import GROUP_SETTINGS
from storage_engine.core.settings.kafka_settings import KAFKA_SETTINGS
from storage_engine.core.settings.listener_settings import LISTENER_SETTINGS
from storage_engine.core.settings.metrics_settings import METRICS_SETTINGS
from storage_engine.core.settings.network_settings import NETWORK_SETTINGS
from storage_engine.core.settings.sasl_settings import SASL_SETTINGS
from storage_engine.core.settings.setting import LONG_MAX, Alias, Setting, SettingType
from storage_engine.core.settings.tls_settings import TLS_SETTINGS
from storage_engine.core.settings.topic_settings import TOPIC_SETTINGS
from storage_engine.core.settings.zookeeper_settings import ZOOKEEPER_TLS_SETTINGS

LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

REPLICA_SELECTOR = "replica.selector.class"
_SELECTORS = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = ("RackAwareReplicaSelector", f"{_SELECTORS}RackAwareReplicaSelector")
LEADER_SELECTORS = ("LeaderSelector", f"{_SELECTORS}LeaderSelector")

BROKER_ONLY_SETTINGS: tuple[Setting, ...] = (
    # ---- identity ----
    Setting(
        name="broker.id",
        type=SettingType.INT,
        minimum=0,
        required=True,
        doc="The id of this broker. It is unique in the cluster and stays with the data.",
    ),
    Setting(
        name="broker.rack",
        type=SettingType.STRING,
        doc="The rack or zone of this broker. The replicas of a partition are spread over racks.",
    ),
    Setting(
        name="log.dirs",
        aliases=(Alias(name="log.dir", factor=1),),
        type=SettingType.LIST,
        required=True,  # Kafka's default is in /tmp, where data does not last
        doc="The log dirs, separated by commas.",
    ),
    # ---- ZooKeeper ----
    Setting(
        name="zookeeper.connect",
        type=SettingType.STRING,
        required=True,
        doc="The ZooKeeper ensemble and the path of the cluster: host:port,host:port[/path].",
    ),
    *FAILOVER_SETTINGS,
    Setting(
        name="zookeeper.connection.timeout.ms",
        type=SettingType.INT,
        minimum=1,
        unit="ms",
        doc="How long a starting broker waits for ZooKeeper (default: the session timeout).",
    ),
    Setting(
        name="zookeeper.digest.credentials.file",
        type=SettingType.STRING,
        doc="A file with one line, user:password, for ZooKeeper's digest authentication.",
    ),
    Setting(
        name="zookeeper.set.acl",
        type=SettingType.BOOLEAN,
        default=False,
        doc="Only that user may write new znodes; everybody may read them. zookeeper.connect "
        "needs a path.",
    ),
    *ZOOKEEPER_TLS_SETTINGS,
    # ---- topics ----
    Setting(
        name="num.partitions",
        type=SettingType.INT,
        default=1,
        minimum=1,
        unit="partitions",
        live=True,
        doc="The number of partitions of a new topic, unless its creator gives another.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=3,  # R-CTL11; Kafka's is 1
        minimum=1,
        maximum=32767,
        unit="replicas",
        live=True,
        doc="The replication factor of a new topic, unless its creator gives another.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        live=True,
        doc="A topic that does not exist is created when a client asks for its metadata.",
    ),
    Setting(
        name="delete.topic.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Topics can be deleted. With false, requests to delete topics are refused.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        type=SettingType.INT,
        default=3,
        minimum=1,
        maximum=32767,
        unit="replicas",
        doc="The number of replicas that the topic __transaction_state is created with.",
    ),
    Setting(
        name="transaction.state.log.min.isr",
        type=SettingType.INT,
        default=2,
        minimum=1,
        unit="replicas",
        doc="The min.insync.replicas that the topic __transaction_state is created with.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="The number of partitions of the topic __transaction_state. It can't be changed later.",
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="The segment size of __transaction_state; small segments are compacted and loaded "
        "sooner.",
    ),
    # ---- transactions ----
    Setting(
        name="transaction.max.timeout.ms",
        type=SettingType.INT,
        default=900_000,
        minimum=1,
        unit="ms",
        doc="The longest transaction timeout that a producer may ask for.",
    ),
    Setting(
        name="transactional.id.expiration.ms",
        type=SettingType.INT,
        default=604_800_000,
        minimum=1,
        unit="ms",
        doc="A transactional id, or a batch write without sinkId, is forgotten when unused "
        "for this long.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        type=SettingType.INT,
        default=10_000,
        minimum=1,
        unit="ms",
        doc="How often the broker looks for transactions that timed out or hang, and unused ids.",
    ),
    # ---- replication ----
    Setting(
        name="replica.lag.time.max.ms",
        type=SettingType.LONG,
        default=10_000,  # the documented default (R-REP4); Kafka's is 30000 by now
        minimum=1,
        unit="ms",
        doc="A follower that has not caught up for this long leaves the in-sync replicas.",
    ),
    Setting(
        name="replica.lag.max.messages",
        type=SettingType.LONG,
        default=None,  # documented as 4000; off, because bursts make the ISR flap (R-REP4)
        minimum=1,
        unit="records",
        doc="A follower with a larger lag than this leaves the in-sync replicas (default: no "
        "limit).",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        type=SettingType.INT,
        default=1 << 20,
        minimum=0,
        unit="bytes",
        doc="The most that a follower fetches of one partition; a larger first batch is sent "
        "whole.",
    ),
    Setting(
        name="replica.fetch.response.max.bytes",
        type=SettingType.INT,
        default=10 << 20,
        minimum=0,
        unit="bytes",
        doc="The most that a follower fetches in one request.",
    ),
    Setting(
        name="replica.fetch.min.bytes",
        type=SettingType.INT,
        default=1,
        minimum=0,
        unit="bytes",
        doc="A follower's fetch is answered once there is this much, or "
        "replica.fetch.wait.max.ms is over.",
    ),
    Setting(
        name="replica.fetch.wait.max.ms",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="ms",
        doc="The longest that a follower's fetch waits; it must be less than "
        "replica.lag.time.max.ms.",
    ),
    Setting(
        name=MOVES_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        live=True,
        unit="bytes",
        doc="The rate limit for copying replicas from one log dir to another, per second.",
    ),
    Setting(
        name=LEADER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="The rate limit for sending to throttled replicas that are not in sync.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="The rate limit for fetching into throttled replicas that are not in sync.",
    ),
    Setting(
        name="replica.fetch.backoff.ms",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="ms",
        doc="How long a follower waits after a failed fetch.",
    ),
    Setting(
        name="replica.high.watermark.checkpoint.interval.ms",
        type=SettingType.LONG,
        default=5000,
        minimum=1,
        unit="ms",
        doc="How often high watermarks are written to disk.",
    ),
    Setting(
        name=REPLICA_SELECTOR,
        type=SettingType.STRING,
        choices=RACK_AWARE_SELECTORS + LEADER_SELECTORS,
        doc="With RackAwareReplicaSelector, consumers read from in-sync replicas in their rack.",
    ),
    # ---- controller ----
    Setting(
        name="auto.leader.rebalance.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="The controller makes preferred replicas leaders again by itself.",
    ),
    Setting(
        name="leader.imbalance.check.interval.seconds",
        type=SettingType.LONG,
        default=300,
        minimum=1,
        unit="s",
        doc="How often the controller looks for leaders that are not the preferred replicas.",
    ),
    Setting(
        name="leader.imbalance.per.broker.percentage",
        type=SettingType.INT,
        default=10,
        minimum=0,
        maximum=100,
        unit="%",
        doc="The share of a broker's preferred partitions that others may lead before it acts.",
    ),
    Setting(
        name="controlled.shutdown.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="A broker that shuts down has its partitions led by other brokers first.",
    ),
    *NETWORK_SETTINGS,
    # ---- background work of the log ----
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="How often the broker looks for segments that retention deletes.",
    ),
    Setting(
        name="log.deletion.policy",  # ours
        type=SettingType.STRING,
        default="kafka",
        doc="The policy that chooses the segments to delete: kafka, or module:Class on the "
        "Python path.",
    ),
    Setting(
        name="log.flush.scheduler.interval.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        unit="ms",
        doc="How often the broker looks for logs to flush because of flush.ms.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60_000,
        minimum=0,
        unit="ms",
        doc="How often the offsets up to which logs are flushed are written to disk.",
    ),
    Setting(
        name="log.scrub.interval.ms",
        type=SettingType.LONG,
        default=7 * 24 * 3600 * 1000,
        minimum=0,
        unit="ms",
        doc="How often closed segments are checked, and repaired from replicas; 0: only after "
        "an error.",
    ),
    Setting(
        name="log.scrub.bytes.per.second",
        type=SettingType.LONG,
        default=10 << 20,
        minimum=64 << 10,
        unit="bytes",
        doc="The rate at which closed segments are read for this check, on all disks "
        "together, per second.",
    ),
    Setting(
        name="log.cleaner.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Topics with the cleanup.policy compact are compacted. With false, none is.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        type=SettingType.LONG,
        default=15_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="How often the broker looks for logs to compact.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        type=SettingType.LONG,
        default=128 << 20,
        minimum=1 << 20,
        unit="bytes",
        live=True,
        doc="Memory for the keys of one compaction pass, 96 bytes each; more keys take more "
        "passes.",
    ),
    Setting(
        name="log.dir.min.free.bytes",  # ours
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        unit="bytes",
        doc="Appends are refused while a log dir has less free space than this; 0: never.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        type=SettingType.INT,
        default=86_400_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="Producer ids that have not written for so long are forgotten, or sooner beyond 25,000 "
        "in a log.",
    ),
)

SETTINGS: tuple[Setting, ...] = (
    BROKER_ONLY_SETTINGS
    + LISTENER_SETTINGS
    + TLS_SETTINGS
    + SASL_SETTINGS
    + ACCESS_SETTINGS
    + GROUP_SETTINGS
    + METRICS_SETTINGS
    + TOPIC_SETTINGS
    + KAFKA_SETTINGS
)

BY_TOPIC_KEY: dict[str, Setting] = {row.name: row for row in SETTINGS if row.for_topics}
"""The settings that a topic may have."""

BY_BROKER_KEY: dict[str, Setting] = {row.broker_key: row for row in SETTINGS if row.for_brokers}
"""The settings that `server.properties` may have, without aliases."""

ALIASES: dict[str, tuple[Setting, Alias]] = {
    alias.name: (row, alias) for row in SETTINGS for alias in row.aliases
}
"""The other names in `server.properties`."""
