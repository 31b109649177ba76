"""The table of all settings. No other module names a setting's default or range.

Names, types and defaults are Kafka's; a row whose default differs says so in its comment. Settings
of Kafka that have no effect here are those of `kafka_settings`. `settings_of` reads the rows.
"""

from dataclasses import replace

from storage_engine.core.security.sasl_client import MECHANISMS
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.kafka_settings import KAFKA_SETTINGS
from storage_engine.core.settings.setting import Alias, Setting, settings_of
from storage_engine.core.settings.zookeeper_settings import ZOOKEEPER_TLS_SETTINGS
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, usual_form

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_IF_NO_RULE = "allow.everyone.if.no.acl.found"

DEATH_PROOF = "broker.death.proof"
BY_PROCESS, BY_PORT, NO_PROOF = "process", "port", "none"

METRICS_LISTENER = "metrics.listener"
METRICS_REMOTE = "metrics.listener.allow.remote"
METRICS_HOSTS = "metrics.allowed.hosts"

LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

REPLICA_SELECTOR = "replica.selector.class"
_KAFKAS = "org.apache.kafka.common.replica."
RACK_AWARE_SELECTORS = ("RackAwareReplicaSelector", f"{_KAFKAS}RackAwareReplicaSelector")
LEADER_SELECTORS = ("LeaderSelector", f"{_KAFKAS}LeaderSelector")

_SELECTORS = ",".join(RACK_AWARE_SELECTORS + LEADER_SELECTORS)
_MECHANISMS = ",".join(MECHANISMS)
_PROTOCOLS = ",".join(SecurityProtocol.__members__)
_PROTOCOL_MAP = ",".join(f"{name}:{name}" for name in SecurityProtocol.__members__)

_BROKERS = """
# ---- identity ----
broker.id int - min=0 required
    The id of this broker. It is unique in the cluster and stays with the data.
broker.rack str -
    The rack or zone of this broker. The replicas of a partition are spread over racks.
# Ours: Kafka knows no machine below its racks.
broker.host.name str -
    The machine of this broker. Replicas of a partition never share one while there are enough.
log.dirs list - alias=log.dir required  # Kafka's default is in /tmp, where data does not last
    The log dirs, separated by commas.
cordoned.log.dirs list () live
    The log dirs that take no new replicas; * stands for all, so that the broker takes none.
# ---- ZooKeeper ----
zookeeper.connect str - required
    The ZooKeeper ensemble and the path of the cluster: host:port,host:port[/path].
# The documented default; Kafka's is 18000 by now.
zookeeper.session.timeout.ms int 6000 min=1000 unit=ms
    A broker counts as dead when ZooKeeper has not heard from it for this long.
# Kafka has no such setting: its brokers wait for the session.
broker.death.proof str process choices=process,port,none
    What proves that a broker is dead; port can be wrong, and lose records of acks=1.
zookeeper.connection.timeout.ms int - min=1 unit=ms
    How long a starting broker waits for ZooKeeper (default: the session timeout).
zookeeper.digest.credentials.file str -
    A file with one line, user:password, for ZooKeeper's digest authentication.
zookeeper.set.acl bool false
    Only that user may write new znodes; everybody may read them. zookeeper.connect needs a path.
"""

_MORE_OF_BROKERS = f"""
# ---- topics ----
num.partitions int 1 min=1 unit=partitions live
    The number of partitions of a new topic, unless its creator gives another.
default.replication.factor int 3 min=1 max=32767 unit=replicas live  # R-CTL11; Kafka's is 1
    The replication factor of a new topic, unless its creator gives another.
auto.create.topics.enable bool true live
    A topic that does not exist is created when a client asks for its metadata.
delete.topic.enable bool true
    Topics can be deleted. With false, requests to delete topics are refused.
transaction.state.log.replication.factor int 3 min=1 max=32767 unit=replicas
    The number of replicas that the topic __transaction_state is created with.
transaction.state.log.min.isr int 2 min=1 unit=replicas
    The min.insync.replicas that the topic __transaction_state is created with.
# Ours: what one request can create.
transaction.state.log.num.partitions int 50 min=1 max=10000 unit=partitions
    The number of partitions of the topic __transaction_state. It can't be changed later.
transaction.state.log.segment.bytes int 100<<20 min=1<<20 unit=bytes  # Kafka's is 1
    The segment size of __transaction_state; small segments are compacted and loaded sooner.
# ---- transactions ----
transaction.max.timeout.ms int 900000 min=1 unit=ms
    The longest transaction timeout that a producer may ask for.
transactional.id.expiration.ms int 604800000 min=1 unit=ms
    A transactional id, or a batch write without sinkId, is forgotten when unused for this long.
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 min=1 unit=ms
    How often the broker looks for transactions that timed out or hang, and unused ids.
# ---- replication ----
# The documented default (R-REP4); Kafka's is 30000 by now.
replica.lag.time.max.ms long 10000 min=1 unit=ms
    A follower that has not caught up for this long leaves the in-sync replicas.
# Documented as 4000; off, because bursts make the ISR flap (R-REP4).
replica.lag.max.messages long - min=1 unit=records
    A follower with a larger lag than this leaves the in-sync replicas (default: no limit).
replica.fetch.max.bytes int 1<<20 min=0 unit=bytes
    The most that a follower fetches of one partition; a larger first batch is sent whole.
replica.fetch.response.max.bytes int 10<<20 min=0 unit=bytes
    The most that a follower fetches in one request.
replica.fetch.min.bytes int 1 min=0 unit=bytes
    A follower's fetch is answered once there is this much, or replica.fetch.wait.max.ms is over.
# Kafka's is 500: 48 brokers without work would take more than a core to ask each other that often.
replica.fetch.wait.max.ms int - min=1 unit=ms
    The longest that a follower's fetch waits (default: a quarter of replica.lag.time.max.ms).
replica.alter.log.dirs.io.max.bytes.per.second long max min=1 unit=bytes live
    The rate limit for copying replicas from one log dir to another, per second.
leader.replication.throttled.rate long max min=1 unit=bytes_per_second live
    The rate limit for sending to throttled replicas that are not in sync.
follower.replication.throttled.rate long max min=1 unit=bytes_per_second live
    The rate limit for fetching into throttled replicas that are not in sync.
replica.fetch.backoff.ms int 1000 min=0 unit=ms
    How long a follower waits after a failed fetch.
replica.high.watermark.checkpoint.interval.ms long 5000 min=1 unit=ms
    How often high watermarks are written to disk.
replica.selector.class str - choices={_SELECTORS}
    With RackAwareReplicaSelector, consumers read from in-sync replicas in their rack.
# ---- controller ----
auto.leader.rebalance.enable bool true
    The controller makes preferred replicas leaders again by itself.
leader.imbalance.check.interval.seconds long 300 min=1 unit=s
    How often the controller looks for leaders that are not the preferred replicas.
leader.imbalance.per.broker.percentage int 10 min=0 max=100 unit=%
    The share of a broker's preferred partitions that others may lead before it acts.
controlled.shutdown.enable bool true
    A broker that shuts down has its partitions led by other brokers first.
# ---- connections and requests ----
queued.max.requests int 500 min=1 unit=requests
    The broker reads no more requests while this many, of all connections, are unanswered.
socket.request.max.bytes int 100<<20 min=1 unit=bytes
    The largest request. A connection that sends a larger one is closed.
# Kafka's 102400 would cap what the system adapts by itself.
socket.send.buffer.bytes int -1 min=-1 unit=bytes
    The send buffer of each connection; with -1 the operating system chooses.
socket.receive.buffer.bytes int -1 min=-1 unit=bytes  # as above
    The receive buffer of each connection; with -1 the operating system chooses.
max.connections int - min=0 unit=connections listener
    The most connections of all clients (default: what the limit of open files allows).
max.connections.per.ip int max min=0 unit=connections live
    The most connections from one IP address.
max.connections.per.ip.overrides list - live
    Limits that differ for some hosts or addresses: host:number,host:number.
max.connection.creation.rate int max min=1 unit=connections_a_second live listener live-listener
    The most new connections in a second; further ones wait until there is room.
queued.max.request.bytes long -1 min=-1 unit=bytes
    The most memory for large requests that wait to be handled; -1 sets no limit.
connections.max.idle.ms long 600000 min=-1 unit=ms
    A connection is closed after this long without a request; with -1 it never is.
max.incremental.fetch.session.cache.slots int 1000 min=0 unit=sessions
    The most fetch sessions that the broker keeps; 0 keeps none.
max.request.partition.size.limit int 2000 min=1 unit=partitions
    The most partitions in one answer to DescribeTopicPartitions.
# ---- schemas ----
schemas.topic str _schemas not-empty  # ours
    The topic of the schema registry, where typed topics have headrace.foreign.format=avro.
# ---- background work of the log ----
log.retention.check.interval.ms long 300000 min=1 unit=ms live
    How often the broker looks for segments that retention deletes.
log.deletion.policy str kafka  # ours
    The policy that chooses the segments to delete: kafka, or module:Class on the Python path.
log.flush.scheduler.interval.ms long max min=0 unit=ms
    How often the broker looks for logs to flush because of flush.ms.
log.flush.offset.checkpoint.interval.ms int 60000 min=0 unit=ms
    How often the offsets up to which logs are flushed are written to disk.
log.scrub.interval.ms long 604800000 min=0 unit=ms
    How often closed segments are checked, and repaired from replicas; 0: only after an error.
log.scrub.bytes.per.second long 10<<20 min=64<<10 unit=bytes
    The rate at which closed segments are read for this check, on all disks together, per second.
log.cleaner.enable bool true
    Topics with the cleanup.policy compact are compacted. With false, none is.
log.cleaner.backoff.ms long 15000 min=1 unit=ms live
    How often the broker looks for logs to compact.
log.cleaner.dedupe.buffer.size long 128<<20 min=1<<20 unit=bytes live
    Memory for the keys of one compaction pass, 96 bytes each; more keys take more passes.
log.dir.min.free.bytes long 64<<20 min=0 unit=bytes  # ours
    Appends are refused while a log dir has less free space than this; 0: never.
producer.id.expiration.ms int 86400000 min=1 unit=ms live
    Producer ids that have not written for so long are forgotten, or sooner beyond 25,000 in a log.
# ---- listeners ----
listeners list PLAINTEXT://:9092
    The broker listens at each NAME://host:port; without a host, on all addresses.
advertised.listeners list -
    The addresses that others connect to, by the names of listeners (default: listeners).
listener.security.protocol.map list {_PROTOCOL_MAP}
    NAME:PROTOCOL of each listener; one of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.
inter.broker.listener.name str -
    Brokers use this listener between them (default: security.inter.broker.protocol).
security.inter.broker.protocol str PLAINTEXT choices={_PROTOCOLS}
    Brokers use this listener between them, unless inter.broker.listener.name is set.
# ---- TLS: of each listener, and so changed at run time ----
ssl.keystore.type str - choices=PEM,PKCS12 listener live-listener
    The form of the key store (default: what the file is).
    Allowed: PEM or PKCS12; keytool -importkeystore -deststoretype PKCS12 makes one of a JKS store
ssl.keystore.location str - listener live-listener
    The file with the broker's key and certificates; set it again to have it read again.
ssl.keystore.password password - listener
    The password of a PKCS12 key store.
ssl.keystore.certificate.chain password - listener
    The broker's certificate in PEM with those above it, in place of a file.
ssl.keystore.key password - listener
    The key of that certificate in PEM.
ssl.key.password password - listener
    The password of an encrypted key in PEM.
ssl.truststore.type str - choices=PEM,PKCS12 listener live-listener
    The form of the trust store (default: what the file is).
    Allowed: PEM or PKCS12; keytool -importkeystore -deststoretype PKCS12 makes one of a JKS store
ssl.truststore.location str - listener live-listener
    The file with the authorities whose certificates are believed.
ssl.truststore.password password - listener
    The password of a PKCS12 trust store.
ssl.truststore.certificates password - listener
    Those authorities in PEM, in place of a file.
ssl.client.auth str none choices=none,requested,required listener live-listener
    Whether clients show a certificate of their own, which names their principal.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 choices=TLSv1.2,TLSv1.3 listener live-listener
    The versions of TLS that are spoken; no older ones are.
ssl.cipher.suites list - listener live-listener
    The cipher suites, by their standard names or OpenSSL's (default: all that are safe).
ssl.endpoint.identification.algorithm str https choices=https,HTTPS, listener live-listener
    With https brokers check each other's host names; empty: they don't.
    Allowed: https, or empty
ssl.principal.mapping.rules str DEFAULT listener live-listener
    How principals get their names from subjects: DEFAULT, RULE:pattern/replacement/[LU].
# ---- log-ins by SASL ----
# Kafka's default is GSSAPI, which is not served.
sasl.enabled.mechanisms list - choices={_MECHANISMS} listener
    The mechanisms by which clients log in at listeners with SASL_PLAINTEXT or SASL_SSL.
# Kafka's default is GSSAPI, which is not served.
sasl.mechanism.inter.broker.protocol str - choices={_MECHANISMS}
    The mechanism by which brokers log in to each other, if their listener asks for it.
sasl.jaas.config password - listener mechanism
    A login module with the user and password of this broker, for PLAIN also of clients (user_NAME).
sasl.plain.users.file str - listener
    A file of clients that log in by PLAIN, user=password in each line, for its owner alone.
sasl.server.max.receive.size int 512<<10 min=1024 max=16<<20 unit=bytes
    The largest request of a client that has not logged in yet.
connections.max.reauth.ms long 0 min=0 unit=ms listener mechanism
    A client that logged in by SASL has to do so again after this time; 0: never.
connection.failed.authentication.delay.ms int 100 min=0 max=60000 unit=ms
    A log-in that failed is answered after this time.
sasl.oauthbearer.jwks.endpoint.url str - listener mechanism
    The public keys for OAUTHBEARER: a JWKS at an https, http or file URL.
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 min=1000 unit=ms listener mechanism
    The keys are read again after this time.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 min=1 unit=ms listener mechanism
    After a failed read of the keys the next one waits for this time, then for twice as long, and so
    on.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 min=1 unit=ms listener mechanism
    The longest such wait.
sasl.oauthbearer.expected.audience list - listener mechanism
    A token must be for one of these audiences; if none is set, for no audience.
sasl.oauthbearer.expected.issuer str - listener mechanism
    A token must be from this issuer (default: from any whose keys are there).
sasl.oauthbearer.sub.claim.name str sub listener mechanism not-empty
    The claim of a token that names the client.
sasl.oauthbearer.clock.skew.seconds int 30 min=0 max=3600 unit=s listener mechanism
    The clock of the identity provider may differ from this broker's by this time.
# ---- access rules ----
authorizer.class.name str - choices=AclAuthorizer,kafka.security.authorizer.AclAuthorizer
    AclAuthorizer: clients may do what access rules allow (default: they may do all).
super.users str -
    Those who may do everything, whatever the rules say: administrators and brokers.
    Allowed: a list of kind:name, separated by semicolons, for example User:admin;User:broker
allow.everyone.if.no.acl.found bool false
    With true, what no access rule is about may be used by everybody.
# ---- consumer groups ----
offsets.topic.replication.factor int 3 min=1 max=32767 unit=replicas
    The number of replicas that the topic __consumer_offsets is created with.
# Ours: what one request can create.
offsets.topic.num.partitions int 50 min=1 max=10000 unit=partitions
    The number of partitions of the topic __consumer_offsets. It can't be changed later.
offsets.topic.segment.bytes int 100<<20 min=1<<20 unit=bytes  # Kafka's is 1
    The segment size of __consumer_offsets; small segments are compacted and loaded sooner.
offsets.retention.minutes int 10080 min=1 unit=minutes
    Committed offsets are deleted when their group has had no members for this long.
offsets.retention.check.interval.ms long 600000 min=1 unit=ms
    How often the broker looks for expired offsets, and for groups without offsets.
offsets.commit.timeout.ms int 5000 min=1 unit=ms
    An offset commit fails when the replicas have not stored it within this time.
# Ours: what a string of the record can hold.
offset.metadata.max.bytes int 4096 min=0 max=32767 unit=bytes
    The most metadata that a client may store with a committed offset.
group.initial.rebalance.delay.ms int 3000 min=0 unit=ms
    How long a new group waits for more members before its first rebalance.
group.min.session.timeout.ms int 6000 min=1 unit=ms
    The shortest session timeout that a group member may ask for.
group.max.session.timeout.ms int 1800000 min=1 unit=ms
    The longest session timeout that a group member may ask for.
group.max.size int max min=1 unit=members
    The most members that a group of the classic protocol may have.
group.consumer.session.timeout.ms int 45000 min=1 unit=ms
    A member of a consumer group is removed after this time without a heartbeat.
group.consumer.min.session.timeout.ms int 45000 min=1 unit=ms
    The shortest consumer.session.timeout.ms that a group may have.
group.consumer.max.session.timeout.ms int 60000 min=1 unit=ms
    The longest consumer.session.timeout.ms that a group may have.
group.consumer.heartbeat.interval.ms int 5000 min=1 unit=ms
    How often members of consumer groups send heartbeats.
group.consumer.min.heartbeat.interval.ms int 5000 min=1 unit=ms
    The shortest consumer.heartbeat.interval.ms that a group may have.
group.consumer.max.heartbeat.interval.ms int 15000 min=1 unit=ms
    The longest consumer.heartbeat.interval.ms that a group may have.
group.consumer.max.size int max min=1 unit=members
    The most members that a consumer group may have.
group.consumer.assignors list uniform,range choices=uniform,range
    The assignors that members of consumer groups may ask for; the first is the default.
group.consumer.migration.policy str bidirectional choices=disabled,upgrade,downgrade,bidirectional
    Whether groups with members change to the consumer protocol (upgrade) and back (downgrade).
# ---- metrics for Prometheus ----
metrics.listener str -
    Metrics for Prometheus are given at http://HOST:PORT/metrics (default: none are).
metrics.listener.allow.remote bool false
    Other machines may reach metrics.listener, and read metrics without a log-in.
metrics.allowed.hosts list -
    Names by which scrapers call the broker, beside addresses and advertised names.
"""

_TOPICS = """
# ---- replication ----
min.insync.replicas= int 1 min=1 unit=replicas
    Writes with acks=all are refused while fewer replicas than this are in sync.
unclean.leader.election.enable= bool false
    A replica that is not in sync may become leader when no other is left; this can lose records.
leader.replication.throttled.replicas= list () items=[*]|[0-9]+:[0-9]+
    The replicas to which leader.replication.throttled.rate applies: PARTITION:BROKER, or *.
    Allowed: PARTITION:BROKER, or *
follower.replication.throttled.replicas= list () items=[*]|[0-9]+:[0-9]+
    The replicas to which follower.replication.throttled.rate applies: PARTITION:BROKER, or *.
    Allowed: PARTITION:BROKER, or *
# ---- records ----
message.max.bytes=max.message.bytes int 1048588 min=0 unit=bytes
    The largest record batch, counted after its compression. A larger one is refused.
log.message.timestamp.type=message.timestamp.type str CreateTime choices=CreateTime,LogAppendTime
    Where timestamps come from: the producer (CreateTime) or the leader's clock (LogAppendTime).
log.message.timestamp.before.max.ms=message.timestamp.before.max.ms long max min=0 unit=ms
    With CreateTime, a batch is refused when its first or newest record is older than this.
log.message.timestamp.after.max.ms=message.timestamp.after.max.ms long max min=0 unit=ms
    With CreateTime, a batch is refused when its newest record is further ahead than this.
compression.type= str producer choices=producer,uncompressed,gzip,snappy,lz4,zstd
    The compression of stored batches: the producer's, or one that the leader compresses with.
# ---- segments ----
log.segment.bytes=segment.bytes int 1<<30 min=14 unit=bytes
    The largest size of a segment. A new segment begins before it would be exceeded.
log.roll.ms=segment.ms long 604800000 min=1 unit=ms alias=log.roll.hours:3600000:hours
    The age at which a segment is closed and a new one begins, so that retention can delete it.
log.roll.jitter.ms=segment.jitter.ms long 0 min=0 unit=ms \
    alias=log.roll.jitter.hours:3600000:hours
    segment.ms is shortened at random by up to this, so that segments do not all roll at once.
log.index.size.max.bytes=segment.index.bytes int 10<<20 min=4 unit=bytes
    The largest size of an index. A new segment begins when the index is full.
log.index.interval.bytes=index.interval.bytes int 4096 min=0 unit=bytes
    The number of bytes of the log for each entry of its index.
# ---- retention ----
log.cleanup.policy=cleanup.policy list delete choices=delete,compact
    Old segments are deleted by age and size, compacted by key, or both.
log.retention.ms=retention.ms long 604800000 min=-1 unit=ms \
    alias=log.retention.minutes:60000:minutes,log.retention.hours:3600000:hours
    A segment is deleted when its newest record is older than this; with -1 it never is.
log.retention.bytes=retention.bytes long -1 min=-1 unit=bytes
    The oldest segments of a partition are deleted beyond this size; -1 sets no limit.
log.segment.delete.delay.ms=file.delete.delay.ms long 60000 min=0 unit=ms
    How long the files of a deleted segment are kept for readers that still use them.
log.cleaner.delete.retention.ms=delete.retention.ms long 86400000 min=0 unit=ms
    How long compaction keeps the tombstone of a deleted key.
log.cleaner.min.cleanable.ratio=min.cleanable.dirty.ratio double 0.5 min=0 max=1
    A log is compacted when the uncompacted share of it reaches this ratio.
log.cleaner.min.compaction.lag.ms=min.compaction.lag.ms long 0 min=0 unit=ms
    Records younger than this are not compacted.
log.cleaner.max.compaction.lag.ms=max.compaction.lag.ms long max min=1 unit=ms
    Records older than this are compacted, even when min.cleanable.dirty.ratio is not reached.
# ---- flush ----
log.flush.interval.messages=flush.messages long max min=1 unit=records
    A log is flushed to disk after this many records; replication is the usual protection.
log.flush.interval.ms=flush.ms long max min=0 unit=ms
    Records that are older than this are flushed to disk.
flush.before.ack= bool false  # ours
    Records are acknowledged once every in-sync replica has flushed them, against power failures.
# ---- tables, which `headrace lake` writes ----
=headrace.table.format str - choices=delta
    `headrace lake` writes the topic into a table of this format; without it, it does not.
=headrace.table.location str - not-empty
    Where the table is, below the lake's root; a topic without it has a table of its name there.
=headrace.table.partition.by list ()
    Columns of the table, separated by commas, by whose values its files are divided.
=headrace.table.commit.interval.ms long 30000 min=100 max=86400000 unit=ms
    A record waits so long at most until it is committed into the table.
=headrace.table.file.bytes long 128<<20 min=1<<20 max=4<<30 unit=bytes
    A commit does not wait longer than until a file of the table has this size.
=headrace.schema str -
    The columns of a typed topic, in all versions; a topic without it has none.
    Allowed: a schema as JSON
=headrace.foreign.format str json choices=json,avro
    How clients that know no columns write and read a typed topic; avro needs a schema registry.
"""

TOPIC_SETTINGS = tuple(
    replace(row, read=usual_form) if row.name == SCHEMA_SETTING else row
    for row in settings_of(_TOPICS)
)
"""Topics without a value of their own have the broker's, where the scope is BOTH."""

SETTINGS: tuple[Setting, ...] = (
    settings_of(_BROKERS)
    + ZOOKEEPER_TLS_SETTINGS
    + settings_of(_MORE_OF_BROKERS)
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
