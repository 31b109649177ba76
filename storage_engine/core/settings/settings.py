"""The table of all settings. Nothing else in the project names a setting's default or range.

Rule: Kafka's names, types and defaults; a row whose default differs says so in its comment, and
what we do not do is not in the table.
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
    # ---- who and where ----
    Setting(
        name="broker.id",
        type=SettingType.INT,
        minimum=0,
        required=True,
        doc="This broker's number, unique in the cluster; it stays with the data.",
    ),
    Setting(
        name="broker.rack",
        type=SettingType.STRING,
        doc="The rack or zone of this broker; replicas are spread over racks.",
    ),
    Setting(
        name="listeners",
        type=SettingType.LIST,
        default=("PLAINTEXT://:9092",),
        doc="Where the broker listens: PLAINTEXT://host:port; no host: on all addresses.",
    ),
    Setting(
        name="advertised.listeners",
        type=SettingType.LIST,
        doc="What clients and brokers are told to connect to; default: listeners.",
    ),
    Setting(
        name="log.dirs",
        aliases=(Alias(name="log.dir", factor=1),),
        type=SettingType.LIST,
        required=True,  # Kafka's default is in /tmp, where data does not last
        doc="Folders for the data, comma-separated.",
    ),
    # ---- ZooKeeper ----
    Setting(
        name="zookeeper.connect",
        type=SettingType.STRING,
        required=True,
        doc="host:port,host:port[/path] of the ZooKeeper ensemble.",
    ),
    Setting(
        name="zookeeper.session.timeout.ms",
        type=SettingType.INT,
        default=6000,  # the documented default; Kafka's is 18000 by now
        minimum=1000,
        unit="ms",
        doc="A broker that ZooKeeper has not heard of for so long counts as dead.",
    ),
    Setting(
        name="zookeeper.connection.timeout.ms",
        type=SettingType.INT,
        minimum=1,
        unit="ms",
        doc="How long a starting broker waits for ZooKeeper; default: the session timeout.",
    ),
    Setting(
        name="zookeeper.digest.credentials.file",
        type=SettingType.STRING,
        doc="File of one line, user:password, for ZooKeeper's digest authentication.",
    ),
    Setting(
        name="zookeeper.set.acl",
        type=SettingType.BOOLEAN,
        default=False,
        doc="Only that user writes new znodes, all may read; zookeeper.connect needs a path.",
    ),
    # ---- topics ----
    Setting(
        name="num.partitions",
        type=SettingType.INT,
        default=1,
        minimum=1,
        unit="partitions",
        live=True,
        doc="Partitions of a topic whose creator does not say.",
    ),
    Setting(
        name="default.replication.factor",
        type=SettingType.INT,
        default=3,  # R-CTL11; Kafka's is 1
        minimum=1,
        maximum=32767,
        unit="replicas",
        live=True,
        doc="Replicas of a partition of a topic whose creator does not say.",
    ),
    Setting(
        name="auto.create.topics.enable",
        type=SettingType.BOOLEAN,
        default=True,
        live=True,
        doc="A topic that a client asks for and that does not exist is created.",
    ),
    Setting(
        name="delete.topic.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Topics may be deleted; false: the request is refused.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        type=SettingType.INT,
        default=3,
        minimum=1,
        maximum=32767,
        unit="replicas",
        doc="Replicas of the topic that keeps the state of transactions.",
    ),
    Setting(
        name="transaction.state.log.min.isr",
        type=SettingType.INT,
        default=2,
        minimum=1,
        unit="replicas",
        doc="min.insync.replicas of the topic that keeps the state of transactions.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        type=SettingType.INT,
        default=50,
        minimum=1,
        maximum=10_000,  # ours: what one request can create
        unit="partitions",
        doc="Partitions of the topic that keeps the state of transactions; fixed once it is there.",
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1 << 20,  # Kafka's is 1
        unit="bytes",
        doc="segment.bytes of that topic: small ones are compacted, and read at a failover, soon.",
    ),
    # ---- transactions ----
    Setting(
        name="transaction.max.timeout.ms",
        type=SettingType.INT,
        default=900_000,
        minimum=1,
        unit="ms",
        doc="The longest that a producer may ask its transactions to stay open.",
    ),
    Setting(
        name="transactional.id.expiration.ms",
        type=SettingType.INT,
        default=604_800_000,
        minimum=1,
        unit="ms",
        doc="A transactional id, or a batch write without a name, is forgotten when it is not used"
        " for so long.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        type=SettingType.INT,
        default=10_000,
        minimum=1,
        unit="ms",
        doc="How often transactions that last too long are looked for, and unused ids.",
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
        doc="A follower that is so far behind leaves the in-sync replicas; not set: off.",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        type=SettingType.INT,
        default=1 << 20,
        minimum=0,
        unit="bytes",
        doc="What a follower asks for of one partition; a larger first batch still comes.",
    ),
    Setting(
        name="replica.fetch.response.max.bytes",
        type=SettingType.INT,
        default=10 << 20,
        minimum=0,
        unit="bytes",
        doc="What a follower asks for in one fetch.",
    ),
    Setting(
        name="replica.fetch.min.bytes",
        type=SettingType.INT,
        default=1,
        minimum=0,
        unit="bytes",
        doc="With less, the leader lets a follower's fetch wait.",
    ),
    Setting(
        name="replica.fetch.wait.max.ms",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="ms",
        doc="The longest that a follower's fetch waits; below replica.lag.time.max.ms.",
    ),
    Setting(
        name=MOVES_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        live=True,
        unit="bytes",
        doc="The most that replicas take per second which move between the folders of this broker.",
    ),
    Setting(
        name=LEADER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="The most that is sent to replicas that are throttled and not in sync.",
    ),
    Setting(
        name=FOLLOWER_THROTTLED_RATE,
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=1,
        unit="bytes per second",
        live=True,
        doc="The most that is taken for replicas that are throttled and not in sync.",
    ),
    Setting(
        name="replica.fetch.backoff.ms",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="ms",
        doc="A follower's pause after a failed fetch.",
    ),
    Setting(
        name="replica.high.watermark.checkpoint.interval.ms",
        type=SettingType.LONG,
        default=5000,
        minimum=1,
        unit="ms",
        doc="How often the high watermarks are written to disk.",
    ),
    Setting(
        name=REPLICA_SELECTOR,
        type=SettingType.STRING,
        choices=RACK_AWARE_SELECTORS + LEADER_SELECTORS,
        doc="RackAwareReplicaSelector: consumers read from in-sync replicas in their rack.",
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
        doc="How often the controller looks for that.",
    ),
    Setting(
        name="leader.imbalance.per.broker.percentage",
        type=SettingType.INT,
        default=10,
        minimum=0,
        maximum=100,
        unit="%",
        doc="The share of a broker's preferred partitions led elsewhere that is put up with.",
    ),
    Setting(
        name="controlled.shutdown.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="A broker that stops hands its leaderships over first.",
    ),
    # ---- network ----
    Setting(
        name="queued.max.requests",
        type=SettingType.INT,
        default=500,
        minimum=1,
        unit="requests",
        doc="Unanswered requests of all connections at which reading pauses.",
    ),
    Setting(
        name="socket.request.max.bytes",
        type=SettingType.INT,
        default=100 << 20,
        minimum=1,
        unit="bytes",
        doc="The largest request; a larger one closes its connection.",
    ),
    Setting(
        name="socket.send.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # Kafka's 102400 would cap what the system adapts by itself
        minimum=-1,
        unit="bytes",
        doc="Send buffer of connections; -1: the system's, which adapts.",
    ),
    Setting(
        name="socket.receive.buffer.bytes",
        type=SettingType.INT,
        default=_SYSTEM_BUFFER,  # as above
        minimum=-1,
        unit="bytes",
        doc="Receive buffer of connections; -1: the system's, which adapts.",
    ),
    Setting(
        name="max.connections",
        type=SettingType.INT,
        minimum=0,
        unit="connections",
        doc="Of all clients together; unset: what the limit of open files leaves beside the logs.",
    ),
    Setting(
        name="max.connections.per.ip",
        type=SettingType.INT,
        default=2**31 - 1,
        minimum=0,
        unit="connections",
        doc="Connections from one address.",
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        type=SettingType.LIST,
        doc="Other numbers for some hosts or addresses: host:number,host:number.",
    ),
    Setting(
        name="queued.max.request.bytes",
        type=SettingType.LONG,
        default=-1,
        minimum=-1,
        unit="bytes",
        doc="Memory for large requests that are received and not handled yet; -1: no bound.",
    ),
    Setting(
        name="connections.max.idle.ms",
        type=SettingType.LONG,
        default=600_000,
        minimum=-1,
        unit="ms",
        doc="A connection without a request for so long is closed; -1: never.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        type=SettingType.INT,
        default=1000,
        minimum=0,
        unit="sessions",
        doc="Fetch sessions that are remembered at a time; 0: none.",
    ),
    # ---- background work of the log ----
    Setting(
        name="log.retention.check.interval.ms",
        type=SettingType.LONG,
        default=300_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="How often segments are looked through for what retention deletes.",
    ),
    Setting(
        name="log.deletion.policy",  # ours
        type=SettingType.STRING,
        default="kafka",
        doc="What decides which old segments go: kafka, or module:Class of the Python path.",
    ),
    Setting(
        name="log.flush.scheduler.interval.ms",
        type=SettingType.LONG,
        default=LONG_MAX,
        minimum=0,
        unit="ms",
        doc="How often logs are looked through for what flush.ms wants flushed.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        type=SettingType.INT,
        default=60_000,
        minimum=0,
        unit="ms",
        doc="How often it is written down up to where the logs are flushed.",
    ),
    Setting(
        name="log.scrub.interval.ms",
        type=SettingType.LONG,
        default=7 * 24 * 3600 * 1000,
        minimum=0,
        unit="ms",
        doc="How often finished segments are checked, and repaired by replicas; 0: on suspicion.",
    ),
    Setting(
        name="log.scrub.bytes.per.second",
        type=SettingType.LONG,
        default=10 << 20,
        minimum=64 << 10,
        unit="bytes",
        doc="How fast finished segments are read to be checked, on all disks together.",
    ),
    Setting(
        name="log.cleaner.enable",
        type=SettingType.BOOLEAN,
        default=True,
        doc="Compact the topics whose cleanup.policy says so.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        type=SettingType.LONG,
        default=15_000,
        minimum=1,
        unit="ms",
        doc="How often logs are looked through for what is to be compacted.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        type=SettingType.LONG,
        default=128 << 20,
        minimum=1 << 20,
        unit="bytes",
        doc="Memory for the keys of a compaction pass, 96 bytes each; more keys take more passes.",
    ),
    Setting(
        name="log.dir.min.free.bytes",  # ours
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        unit="bytes",
        doc="Appends are refused while less is free in a data folder's file system; 0: off.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        type=SettingType.INT,
        default=86_400_000,
        minimum=1,
        unit="ms",
        live=True,
        doc="A producer unheard of for so long is forgotten, its sequence numbers with it.",
    ),
)

SETTINGS: tuple[Setting, ...] = BROKER_ONLY_SETTINGS + GROUP_SETTINGS + TOPIC_SETTINGS

BY_TOPIC_KEY: dict[str, Setting] = {row.name: row for row in SETTINGS if row.for_topics}
"""What a topic may set."""

BY_BROKER_KEY: dict[str, Setting] = {row.broker_key: row for row in SETTINGS if row.for_brokers}
"""What `server.properties` may set, aliases aside."""

ALIASES: dict[str, tuple[Setting, Alias]] = {
    alias.name: (row, alias) for row in SETTINGS for alias in row.aliases
}
"""The other names in `server.properties`."""
