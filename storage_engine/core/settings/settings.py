"""The table of all settings. No other module names a setting's default or range.

Rule: Kafka's names, types and defaults; a row whose default differs says so in its comment, and
settings without an effect are not in the table.
"""

from storage_engine.core.settings.group_settings import GROUP_SETTINGS
from storage_engine.core.settings.setting import LONG_MAX, Alias, Setting, SettingType
from storage_engine.core.settings.topic_settings import TOPIC_SETTINGS

LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

_SYSTEM_BUFFER = -1

REPLICA_SELECTOR = "replica.selector.class"
_SELECTORS = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = ("RackAwareReplicaSelector", f"{_SELECTORS}RackAwareReplicaSelector")
LEADER_SELECTORS = ("LeaderSelector", f"{_SELECTORS}LeaderSelector")

BROKER_ONLY_SETTINGS: tuple[Setting, ...] = (
    # ---- identity and listeners ----
    Setting(
        name="broker.id",
        type=SettingType.INT,
        minimum=0,
        required=True,
        doc="The number of this broker. It is unique in the cluster and stays with the data.",
    ),
    Setting(
        name="broker.rack",
        type=SettingType.STRING,
        doc="The rack or zone of this broker. The replicas of a partition are spread over racks.",
    ),
    Setting(
        name="listeners",
        type=SettingType.LIST,
        default=("PLAINTEXT://:9092",),
        doc="The broker listens at PLAINTEXT://host:port; without a host it listens on all "
        "addresses.",
    ),
    Setting(
        name="advertised.listeners",
        type=SettingType.LIST,
        doc="Clients and brokers are told to connect to this address (default: listeners).",
    ),
    Setting(
        name="log.dirs",
        aliases=(Alias(name="log.dir", factor=1),),
        type=SettingType.LIST,
        required=True,  # Kafka's default is in /tmp, where data does not last
        doc="The log directories, separated by commas.",
    ),
    # ---- ZooKeeper ----
    Setting(
        name="zookeeper.connect",
        type=SettingType.STRING,
        required=True,
        doc="The ZooKeeper ensemble and the path of the cluster: host:port,host:port[/path].",
    ),
    Setting(
        name="zookeeper.session.timeout.ms",
        type=SettingType.INT,
        default=6000,  # the documented default; Kafka's is 18000 by now
        minimum=1000,
        unit="ms",
        doc="A broker counts as dead when ZooKeeper has not heard of it for so long.",
    ),
    Setting(
        name="zookeeper.connection.timeout.ms",
        type=SettingType.INT,
        minimum=1,
        unit="ms",
        doc="A starting broker waits so long for ZooKeeper (default: the session timeout).",
    ),
    Setting(
        name="zookeeper.digest.credentials.file",
        type=SettingType.STRING,
        doc="This file has one line, user:password, for ZooKeeper's digest authentication.",
    ),
    Setting(
        name="zookeeper.set.acl",
        type=SettingType.BOOLEAN,
        default=False,
        doc="Only that user may write new znodes, and all may read them; zookeeper.connect "
        "needs a path.",
    ),
    # ---- topics ----
    Setting(
        name="num.partitions",
        type=SettingType.INT,
        default=1,
        minimum=1,
        unit="partitions",
        live=True,
        doc="A topic gets so many partitions when its creator does not say.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=3,  # R-CTL11; Kafka's is 1
        minimum=1,
        maximum=32767,
        unit="replicas",
        live=True,
        doc="A topic gets so many replicas when its creator does not say.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        live=True,
        doc="A topic is created when a client asks for it and it does not exist.",
    ),
    Setting(
        name="delete.topic.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Topics may be deleted; with false the request is refused.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        type=SettingType.INT,
        default=3,
        minimum=1,
        maximum=32767,
        unit="replicas",
        doc="The topic __transaction_state is created with so many replicas.",
    ),
    Setting(
        name="transaction.state.log.min.isr",
        type=SettingType.INT,
        default=2,
        minimum=1,
        unit="replicas",
        doc="The topic __transaction_state is created with this min.insync.replicas.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="The topic __transaction_state is created with so many partitions, for good.",
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="Small segments of that topic are soon compacted, and soon read at a failover.",
    ),
    # ---- transactions ----
    Setting(
        name="transaction.max.timeout.ms",
        type=SettingType.INT,
        default=900_000,
        minimum=1,
        unit="ms",
        doc="A producer may ask that its transactions stay open for so long at most.",
    ),
    Setting(
        name="transactional.id.expiration.ms",
        type=SettingType.INT,
        default=604_800_000,
        minimum=1,
        unit="ms",
        doc="A transactional id, or a batch write without a name, is forgotten after so long "
        "without use.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        type=SettingType.INT,
        default=10_000,
        minimum=1,
        unit="ms",
        doc="The broker looks this often for transactions that have timed out, and for unused ids.",
    ),
    # ---- replication ----
    Setting(
        name="replica.lag.time.max.ms",
        type=SettingType.LONG,
        default=10_000,  # the documented default (R-REP4); Kafka's is 30000 by now
        minimum=1,
        unit="ms",
        doc="A follower that has not caught up for so long leaves the in-sync replicas.",
    ),
    Setting(
        name="replica.lag.max.messages",
        type=SettingType.LONG,
        default=None,  # documented as 4000; off, because bursts make the ISR flap (R-REP4)
        minimum=1,
        unit="records",
        doc="A follower that is so far behind leaves the in-sync replicas; if not set, none does.",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        type=SettingType.INT,
        default=1 << 20,
        minimum=0,
        unit="bytes",
        doc="A follower asks for so much of one partition; a larger first batch still comes.",
    ),
    Setting(
        name="replica.fetch.response.max.bytes",
        type=SettingType.INT,
        default=10 << 20,
        minimum=0,
        unit="bytes",
        doc="A follower asks for so much in one fetch.",
    ),
    Setting(
        name="replica.fetch.min.bytes",
        type=SettingType.INT,
        default=1,
        minimum=0,
        unit="bytes",
        doc="The leader lets a follower's fetch wait until there is so much.",
    ),
    Setting(
        name="replica.fetch.wait.max.ms",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="ms",
        doc="A follower's fetch waits so long at most; less than replica.lag.time.max.ms.",
    ),
    Setting(
        name=MOVES_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        live=True,
        unit="bytes",
        doc="Replicas that move between log directories copy so much per second at most.",
    ),
    Setting(
        name=LEADER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="Throttled replicas that are not in sync are sent so much at most.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="Throttled replicas that are not in sync fetch so much at most.",
    ),
    Setting(
        name="replica.fetch.backoff.ms",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="ms",
        doc="A follower pauses so long after a failed fetch.",
    ),
    Setting(
        name="replica.high.watermark.checkpoint.interval.ms",
        type=SettingType.LONG,
        default=5000,
        minimum=1,
        unit="ms",
        doc="High watermarks are written to disk this often.",
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
        doc="The controller gives leadership back to preferred replicas by itself.",
    ),
    Setting(
        name="leader.imbalance.check.interval.seconds",
        type=SettingType.LONG,
        default=300,
        minimum=1,
        unit="s",
        doc="The controller looks this often for leaders that are not the preferred replicas.",
    ),
    Setting(
        name="leader.imbalance.per.broker.percentage",
        type=SettingType.INT,
        default=10,
        minimum=0,
        maximum=100,
        unit="%",
        doc="So many of a broker's preferred partitions may be led elsewhere.",
    ),
    Setting(
        name="controlled.shutdown.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="A broker that stops first hands over its partitions to other leaders.",
    ),
    # ---- network ----
    Setting(
        name="queued.max.requests",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="requests",
        doc="Reading pauses when so many requests of all connections are unanswered.",
    ),
    Setting(
        name="socket.request.max.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1,
        unit="bytes",
        doc="A larger request closes its connection.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # Kafka's 102400 would cap what the system adapts by itself
        minimum=-1,
        unit="bytes",
        doc="The send buffer of connections; with -1 the system adapts it.",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # as above
        minimum=-1,
        unit="bytes",
        doc="The receive buffer of connections; with -1 the system adapts it.",
    ),
    Setting(
        name="max.connections",
        type=SettingType.INT,
        minimum=0,
        unit="connections",
        doc="All clients together have so many connections (default: what the limit of open "
        "files allows).",
    ),
    Setting(
        name="max.connections.per.ip",
        type=SettingType.INT,
        default=2**31 - 1,
        minimum=0,
        unit="connections",
        doc="One address may have so many connections.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        type=SettingType.LIST,
        doc="Some hosts or addresses may have other numbers: host:number,host:number.",
    ),
    Setting(
        name="queued.max.request.bytes",
        type=SettingType.LONG,
        default=-1,
        minimum=-1,
        unit="bytes",
        doc="Large requests that wait to be handled take so much memory; -1 sets no limit.",
    ),
    Setting(
        name="connections.max.idle.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=-1,
        unit="ms",
        doc="A connection is closed after so long without a request; with -1 it never is.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="sessions",
        doc="The broker keeps so many fetch sessions; 0 keeps none.",
    ),
    # ---- background work of the log ----
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="The broker looks this often for segments that retention deletes.",
    ),
    Setting(
        name="log.deletion.policy",  # ours
        type=SettingType.STRING,
        default="kafka",
        doc="This policy chooses the old segments to delete: kafka, or module:Class of the "
        "Python path.",
    ),
    Setting(
        name="log.flush.scheduler.interval.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        unit="ms",
        doc="The broker looks this often for logs that flush.ms wants flushed.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60_000,
        minimum=0,
        unit="ms",
        doc="The offsets up to which logs are flushed are written to disk this often.",
    ),
    Setting(
        name="log.scrub.interval.ms",
        type=SettingType.LONG,
        default=7 * 24 * 3600 * 1000,
        minimum=0,
        unit="ms",
        doc="Closed segments are checked this often, and repaired by replicas; 0: only on "
        "suspicion.",
    ),
    Setting(
        name="log.scrub.bytes.per.second",
        type=SettingType.LONG,
        default=10 << 20,
        minimum=64 << 10,
        unit="bytes",
        doc="Closed segments are read at this rate to be checked, on all disks together.",
    ),
    Setting(
        name="log.cleaner.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Topics are compacted when their cleanup.policy says so.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        type=SettingType.LONG,
        default=15_000,
        minimum=1,
        unit="ms",
        doc="The broker looks this often for logs to compact.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        type=SettingType.LONG,
        default=128 << 20,
        minimum=1 << 20,
        unit="bytes",
        doc="A pass of compaction has this memory for keys, 96 bytes each; more keys take "
        "more passes.",
    ),
    Setting(
        name="log.dir.min.free.bytes",  # ours
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        unit="bytes",
        doc="Appends are refused while a log directory's file system has less free space; 0: "
        "never.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        type=SettingType.INT,
        default=86_400_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="A producer that has not written for so long is forgotten, with its sequence numbers.",
    ),
)

SETTINGS: tuple[Setting, ...] = BROKER_ONLY_SETTINGS + GROUP_SETTINGS + TOPIC_SETTINGS

BY_TOPIC_KEY: dict[str, Setting] = {row.name: row for row in SETTINGS if row.for_topics}
"""The settings that a topic may have."""

BY_BROKER_KEY: dict[str, Setting] = {row.broker_key: row for row in SETTINGS if row.for_brokers}
"""The settings that `server.properties` may have, without aliases."""

ALIASES: dict[str, tuple[Setting, Alias]] = {
    alias.name: (row, alias) for row in SETTINGS for alias in row.aliases
}
"""The other names in `server.properties`."""
