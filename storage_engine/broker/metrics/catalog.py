"""The names of all metrics that a broker exports. A name that is not here can't be exported.

The table in docs/metrics.md is made of this one. Sources of the names that begin with `kafka_`: the
rules of the JMX exporter's example for Kafka (`kafka_<group>_<type>_<name>`, in lower case, and
`_total` for what is counted), and kafka_exporter.
"""

import enum
from typing import NamedTuple


class MetricKind(enum.Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


GAUGE, COUNTER, HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM

PARTITION = ("topic", "partition")
GROUP_PARTITION = ("consumergroup", "topic", "partition")


class MetricRow(NamedTuple):
    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    doc: str


def _gauge(name: str, doc: str, *labels: str) -> MetricRow:
    return MetricRow(name, GAUGE, labels, doc)


def _counter(name: str, doc: str, *labels: str) -> MetricRow:
    return MetricRow(name, COUNTER, labels, doc)


_TOPICS = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_GROUP_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_SESSION = "kafka_server_sessionexpirelistener_zookeeper"

TOPIC_ROWS = (
    _counter(f"{_TOPICS}bytesin_total", "Bytes that producers have appended.", "topic"),
    _counter(f"{_TOPICS}bytesout_total", "Bytes that consumers were sent.", "topic"),
    _counter(f"{_TOPICS}messagesin_total", "Records that were appended.", "topic"),
    _counter(f"{_TOPICS}totalproducerequests_total", "Appends to partitions.", "topic"),
    _counter(f"{_TOPICS}failedproducerequests_total", "Refused appends.", "topic"),
    _counter(f"{_TOPICS}totalfetchrequests_total", "Reads of partitions for consumers.", "topic"),
    _counter(f"{_TOPICS}failedfetchrequests_total", "Refused reads.", "topic"),
    _counter(f"{_TOPICS}replicationbytesin_total", "Bytes that leaders have sent this broker."),
    _counter(f"{_TOPICS}replicationbytesout_total", "Bytes that this broker has sent followers."),
    _counter(
        "headrace_bytes_in_total",
        "Bytes that producers have appended, by the codec of their batches.",
        "codec",
    ),
)

PARTITION_ROWS = (
    _gauge("kafka_log_log_size", "Bytes of the replica's segments.", *PARTITION),
    _gauge("kafka_log_log_numlogsegments", "Segments of the replica.", *PARTITION),
    _gauge("kafka_log_log_logstartoffset", "The first offset of the replica.", *PARTITION),
    _gauge("kafka_log_log_logendoffset", "The offset after its last record.", *PARTITION),
)

LEADER_ROWS = (
    _gauge("kafka_cluster_partition_replicascount", "Replicas, told by the leader.", *PARTITION),
    _gauge("kafka_cluster_partition_insyncreplicascount", "In-sync replicas.", *PARTITION),
    _gauge(
        "kafka_cluster_partition_underreplicated",
        "1 where a replica is not in sync, told by the leader.",
        *PARTITION,
    ),
    _gauge(
        "kafka_cluster_partition_underminisr",
        "1 where fewer replicas are in sync than min.insync.replicas: acks=all is refused.",
        *PARTITION,
    ),
    _gauge(
        "kafka_cluster_partition_atminisr",
        "1 where exactly min.insync.replicas replicas are in sync.",
        *PARTITION,
    ),
    _gauge(
        "kafka_cluster_partition_laststableoffsetlag",
        "Committed records that read_committed readers wait for: high watermark less last stable"
        " offset.",
        *PARTITION,
    ),
    _gauge("kafka_topic_partition_current_offset", "The high watermark.", *PARTITION),
    _gauge("kafka_topic_partition_oldest_offset", "The first offset.", *PARTITION),
    _gauge("kafka_topic_partition_replicas", "Replicas.", *PARTITION),
    _gauge("kafka_topic_partition_in_sync_replica", "In-sync replicas.", *PARTITION),
    _gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 where a replica is not in sync.",
        *PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 where the preferred replica leads.",
        *PARTITION,
    ),
    _gauge(
        "headrace_partition_open_transaction_seconds",
        "The age of the oldest transaction that read_committed readers wait for, by the time of its"
        " first batch. Only where there is one.",
        *PARTITION,
    ),
)

REQUEST_ROWS = (
    _counter(
        "kafka_network_requestmetrics_requests_total",
        "Requests; Fetch also as FetchConsumer and FetchFollower.",
        "request",
        "version",
    ),
    MetricRow(
        "kafka_network_requestmetrics_totaltimems",
        HISTOGRAM,
        ("request",),
        "Milliseconds from when a request is taken up to when its answer is handed over. Of kinds"
        " with more than 250 requests a second only some are timed, and count for the others.",
    ),
    _gauge("kafka_network_requestchannel_requestqueuesize", "Requests without an answer."),
    _gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "What waits: Fetch requests of clients and of followers for data; partitions of Produce and"
        " DeleteRecords for followers.",
        "delayedOperation",
    ),
    _gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions (KIP-227)."
    ),
    _gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections.",
        "listener",
        "networkProcessor",
    ),
    _counter(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "Connections that were opened.",
        "listener",
        "networkProcessor",
    ),
    _counter(
        "headrace_cold_fetch_loads_total",
        "Reads from a disk, of records that a fetch asked for and that were not in the page cache.",
    ),
    _counter("headrace_quota_throttles_total", "Requests that a quota has held back.", "quota"),
    _counter(
        "headrace_quota_throttle_seconds_total",
        "Seconds for which requests were held back, in all.",
        "quota",
    ),
)

BROKER_ROWS = (
    _gauge("kafka_server_kafkaserver_brokerstate", "3: running."),
    _gauge("kafka_broker_info", "1 for each broker that is up.", "id", "address"),
    _gauge("kafka_brokers", "Brokers that are up, as this one knows."),
    _gauge("kafka_topic_partitions", "Partitions of a topic, told by the controller.", "topic"),
    _gauge(f"{_REPLICAS}partitioncount", "Replicas on this broker."),
    _gauge(f"{_REPLICAS}leadercount", "Partitions that it leads."),
    _gauge(f"{_REPLICAS}offlinereplicacount", "Replicas in log dirs that have failed."),
    _gauge(f"{_REPLICAS}underreplicatedpartitions", "Led partitions with a replica out of sync."),
    _gauge(f"{_REPLICAS}underminisrpartitioncount", "Led partitions that refuse acks=all."),
    _gauge(f"{_REPLICAS}atminisrpartitioncount", "Led partitions with no replica to spare."),
    _counter(f"{_REPLICAS}isrshrinks_total", "Replicas that lagged and that leaders took out."),
    _counter(f"{_REPLICAS}isrexpands_total", "Replicas taken in again."),
    _gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "The most committed records that a followed partition lacks.",
        "clientId",
    ),
    _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log dirs out of service."),
    _gauge("headrace_log_dir_free_bytes", "Free bytes of its file system.", "directory"),
    _gauge("headrace_log_dir_total_bytes", "Bytes of its file system.", "directory"),
    _gauge("headrace_log_dir_full", "1 where appends are refused for want of space.", "directory"),
    _gauge(
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        "Bytes that the process has had read from disks, since its start.",
    ),
    _gauge("kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that it has had written."),
    _counter(f"{_SESSION}disconnects_total", "Lost connections to ZooKeeper."),
    _counter(f"{_SESSION}expires_total", "Lost sessions with ZooKeeper."),
    _counter(f"{_SESSION}syncconnects_total", "Connections to ZooKeeper."),
    _gauge(
        "headrace_zookeeper_session_left_seconds",
        "For how long the lease lasts, by which this broker leads.",
    ),
    _gauge(
        "headrace_zookeeper_longest_silence_seconds",
        "The longest time without an answer of ZooKeeper since the start.",
    ),
    _gauge(
        "headrace_certificate_expires_days",
        "Days until the listener's certificate ends; below 0, since when it has.",
        "listener",
    ),
)

LOOP_ROWS = (
    _gauge(
        "headrace_loop_longest_turn_seconds",
        "The longest turn of the event loop in the last minute.",
    ),
    _gauge(
        "headrace_loop_busy_ratio",
        "The share of a processor that the loop's thread took, in the last ten seconds.",
    ),
    _counter("headrace_loop_turns_total", "Turns of the loop that took up requests."),
    _gauge(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "The share of time (0 to 1) in which the loop was idle: one loop does all work.",
    ),
    _gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "The same.",
    ),
    _gauge("headrace_scrape_seconds", "Seconds of the loop's time that the last scrape took."),
    _counter(
        "headrace_scrape_errors_total", "Parts of scrapes that failed; the log says why.", "part"
    ),
)

CONTROLLER_ROWS = (
    _gauge(f"{_CONTROLLER}activecontrollercount", "1 on the controller, 0 on all others."),
    _gauge(f"{_CONTROLLER}globaltopiccount", "Topics; 0 on brokers that do not control."),
    _gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions; so with the next two."),
    _gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without a leader."),
    _gauge(
        f"{_CONTROLLER}preferredreplicaimbalancecount",
        "Partitions that another than their preferred replica leads.",
    ),
    _counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Elections of a replica that was not in sync; they may lose records.",
    ),
    _counter("headrace_controller_leader_elections_total", "Changes of leaders."),
)

GROUP_ROWS = (
    _gauge(f"{_GROUPS}numgroups", "Groups that this broker coordinates."),
    _gauge(f"{_GROUPS}numgroupsempty", "Those without members."),
    _gauge(f"{_GROUPS}numgroupspreparingrebalance", "Those that wait for members to join."),
    _gauge(f"{_GROUPS}numgroupscompletingrebalance", "Those that wait for an assignment."),
    _gauge(f"{_GROUPS}numgroupsstable", "Those whose members have their partitions."),
    _gauge(f"{_GROUPS}numgroupsdead", "Always 0: groups that are gone are not kept."),
    _gauge(
        f"{_GROUP_COORDINATOR}group_count",
        "Groups that this broker coordinates, by their protocol: classic or consumer.",
        "protocol",
    ),
    _gauge(
        f"{_GROUP_COORDINATOR}consumer_group_count",
        "Those of the consumer protocol, by state: empty, assigning, reconciling or stable.",
        "state",
    ),
    _counter(
        f"{_GROUP_COORDINATOR}consumer_group_rebalance_count_total",
        "Rebalances of consumer groups, by the coordinators that are here now.",
    ),
    _gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup"),
    _gauge("kafka_consumergroup_current_offset", "The committed offset.", *GROUP_PARTITION),
    _gauge(
        "kafka_consumergroup_lag",
        "Records behind the high watermark, told by the group's coordinator.",
        *GROUP_PARTITION,
    ),
    _gauge(
        "kafka_consumergroup_lag_seconds",
        "The age of the first record that the group has not read; 0 when it has read all.",
        *GROUP_PARTITION,
    ),
)

TRANSACTION_ROWS = (
    _gauge(
        "kafka_server_transaction_coordinator_metrics_transactional_id_count",
        "Transactional ids that this broker coordinates.",
    ),
    _gauge("headrace_transactions", "Transactions of producers, by state.", "state"),
    _gauge(
        "headrace_transactions_oldest_open_seconds",
        "The age of the oldest open transaction of a producer; 0 without one.",
    ),
    _gauge("headrace_sink_open_members", "Task attempts with an open transaction.", "sink"),
    _gauge(
        "headrace_sink_batches_waiting",
        "Micro-batches with open members, that nobody has committed yet.",
        "sink",
    ),
    _gauge(
        "headrace_sink_batches_ending",
        "Committed micro-batches whose markers are not all written.",
        "sink",
    ),
    _counter("headrace_sink_committed_batches_total", "Micro-batches that were committed."),
    _gauge(
        "headrace_sink_last_batch",
        "The last committed micro-batch of a streaming query; of at most 500 queries.",
        "sink",
        "query",
    ),
)

SCHEMA_ROWS = (
    _gauge(
        "headrace_schemas_known",
        "Known ids of a registry's schemas; 0 until records of Avro are sent or asked for.",
    ),
    _gauge("headrace_schemas_next_offset", "The offset up to which `_schemas` is read, exclusive."),
    _counter(
        "headrace_schemas_looks_total",
        "Questions to the leader of `_schemas` where it ends, mostly for ids that are not known.",
    ),
    _counter(
        "headrace_schemas_unknown_ids_total", "Schema ids of refused records that no schema has."
    ),
)

CATALOG: tuple[MetricRow, ...] = (
    *TOPIC_ROWS,
    *PARTITION_ROWS,
    *LEADER_ROWS,
    *REQUEST_ROWS,
    *BROKER_ROWS,
    *LOOP_ROWS,
    *CONTROLLER_ROWS,
    *GROUP_ROWS,
    *TRANSACTION_ROWS,
    *SCHEMA_ROWS,
)

PROCESS_NAMES = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
)
"""The metrics of the library's ProcessCollector."""
