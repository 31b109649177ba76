"""The settings of a producer: names and defaults are those of Kafka 4's producer, but for
`batch.size`, since a batch costs as much time here as a hundred records.

Invalid values and combinations are refused here. Without `retries` only the delivery timeout ends
retries. Source: R-CLI1; KIP-91, KIP-1030 (linger.ms).
"""

from dataclasses import dataclass

from storage_engine.client.broker_discovery import ZooKeeperBrokers
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.partition_choice import DEFAULT as DEFAULT_PARTITIONER
from storage_engine.client.producer.partition_choice import KEY_PARTITIONERS
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.client.security.security_rows import SECURITY_KEYS, Given
from storage_engine.client.settings import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    Values,
    boolean,
    by_key,
    integer,
    milliseconds,
    one_of,
    parse_settings,
    pop_security,
    pop_zookeeper_tls,
    text,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.setting import Setting, SettingType
from storage_engine.core.settings.zookeeper_settings import (
    ENABLE,
    ZOOKEEPER_TLS_KEYS,
    ZOOKEEPER_TLS_SETTINGS,
    ZooKeeperTls,
)
from storage_engine.zookeeper.connect_string import ConnectString

_LARGEST_BYTES = 256 << 20
"""The size limit of a batch or a request: Arrow's offsets, and lengths in the protocol, are int32.
"""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

SETTINGS = by_key(
    BOOTSTRAP_SERVERS,
    text("zookeeper.connect", "Finds brokers through ZooKeeper, instead of bootstrap.servers."),
    milliseconds(
        "zookeeper.connection.timeout.ms", None, "ZooKeeper is waited for so long (6000)."
    ),
    *ZOOKEEPER_TLS_SETTINGS,
    CLIENT_ID,
    Setting(
        name="acks",
        type=SettingType.STRING,
        default="all",
        choices=tuple(_ACKS),
        form="all (-1), 1 or 0",
        doc="Who must have a record before it is acknowledged: all in-sync replicas, the leader, "
        "or nobody.",
    ),
    boolean(
        "enable.idempotence",
        None,
        "Whether a retry never doubles a record; not set: on where acks is all.",
    ),
    integer(
        "max.in.flight.requests.per.connection",
        5,
        "A leader has so many unanswered requests at most.",
        minimum=1,
    ),
    integer(
        "batch.size",
        65_536,
        "Records of one partition are sent together up to this size.",
        minimum=1,
        maximum=_LARGEST_BYTES,
        unit="bytes",
    ),
    one_of(
        "partitioner",
        tuple(KEY_PARTITIONERS),
        DEFAULT_PARTITIONER,
        "How keys choose partitions: murmur2_random as Java's clients do by default, "
        "consistent_random as librdkafka's.",
    ),
    milliseconds("linger.ms", 5, "A batch that is not full waits so long for more.", minimum=0),
    one_of("compression.type", _CODECS, "none", "The codec of batches."),
    Setting(
        name="buffer.memory",
        type=SettingType.LONG,
        default=32 << 20,
        minimum=1,
        maximum=1 << 50,
        unit="bytes",
        doc="Records that are not acknowledged take so much memory at most; then send waits.",
    ),
    milliseconds("max.block.ms", 60_000, "A send waits so long at most.", minimum=0),
    integer(
        "max.request.size",
        1 << 20,
        "The largest request, and the largest batch.",
        minimum=1,
        maximum=_LARGEST_BYTES,
        unit="bytes",
    ),
    integer(
        "retries",
        None,
        "A batch is sent again so often at most; not set: until delivery.timeout.ms.",
        minimum=0,
    ),
    milliseconds(
        "delivery.timeout.ms", 120_000, "A record that is not acknowledged for so long has failed."
    ),
    REQUEST_TIMEOUT_MS,
    METADATA_MAX_AGE_MS,
    text("transactional.id", "The name under which transactions go on after a restart."),
    milliseconds(
        "transaction.timeout.ms", 60_000, "A transaction that is open for so long is aborted."
    ),
)

ZOOKEEPER_TIMEOUT_MS = 6_000
"""The default of `zookeeper.connection.timeout.ms`."""

_BY_FIELD = {
    key: key.replace(".", "_") for key in SETTINGS if key not in SECURITY_KEYS | ZOOKEEPER_TLS_KEYS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """`SETTINGS`, with _ for the dots; those of security are one value. Times are milliseconds,
    sizes bytes."""

    bootstrap_servers: str
    """Empty with `zookeeper_connect`."""
    zookeeper_connect: ConnectString | None
    zookeeper_connection_timeout_ms: int
    zookeeper_tls: ZooKeeperTls | None
    client_id: str
    acks: int
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    batch_size: int
    partitioner: str
    linger_ms: int
    compression_type: str
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    retries: int | None
    delivery_timeout_ms: int
    request_timeout_ms: int
    metadata_max_age_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    security: ClientSecurity

    @classmethod
    def of(cls, config: Given) -> "ProducerConfig":
        """ConfigError of one line for a wrong key or value."""
        if "acks" in config and not isinstance(config["acks"], bool):
            config = {**config, "acks": str(config["acks"]).lower()}
        values = parse_settings(config, SETTINGS, client="producer")
        security, zookeeper_tls = pop_security(values), pop_zookeeper_tls(values)
        _check_discovery(values)
        if zookeeper_tls is not None and values["zookeeper.connect"] is None:
            raise ConfigError(f"{ENABLE} needs zookeeper.connect; leave it out, or give both")
        acks = values["acks"] = _ACKS[values["acks"]]
        if values["enable.idempotence"] is None:
            values["enable.idempotence"] = acks == -1
        elif values["enable.idempotence"] and acks != -1:
            raise ConfigError(
                f"enable.idempotence needs acks=all, not {acks}; leave one of the two out"
            )
        if values["transactional.id"] is not None and not values["enable.idempotence"]:
            raise ConfigError(
                "transactional.id needs acks=all and enable.idempotence=true, which "
                "are the defaults; leave them out"
            )
        linger_ms, timeout_ms = values["linger.ms"], values["delivery.timeout.ms"]
        if timeout_ms <= linger_ms:
            raise ConfigError(
                f"delivery.timeout.ms is {timeout_ms}; it must be more than linger.ms ({linger_ms})"
            )
        if values["enable.idempotence"] and values["max.in.flight.requests.per.connection"] > 5:
            raise ConfigError(
                "max.in.flight.requests.per.connection must be at most 5 with enable.idempotence, "
                "because a leader remembers 5 batches of a producer"
            )
        fields = {_BY_FIELD[key]: value for key, value in values.items()}
        return cls(**fields, security=security, zookeeper_tls=zookeeper_tls)

    def cluster(self, deadline_ms: int) -> Cluster:
        """Connections to the brokers, which are found by brokers or through ZooKeeper; none is
        opened yet. `deadline_ms`: for what is asked of it to succeed."""
        where, source = self.bootstrap_servers, None
        if self.zookeeper_connect is not None:
            where = f"the cluster of ZooKeeper at {self.zookeeper_connect}"
            source = ZooKeeperBrokers(
                self.zookeeper_connect,
                timeout_ms=self.zookeeper_connection_timeout_ms,
                protocol=self.security.protocol.name,
                tls=self.zookeeper_tls,
            )
        return Cluster(
            where,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            deadline_ms=deadline_ms,
            source=source,
            security=self.security,
        )


def _check_discovery(values: Values) -> None:
    """Checks that exactly one way to find brokers is configured, with its settings."""
    connect, timeout_ms = values["zookeeper.connect"], values["zookeeper.connection.timeout.ms"]
    if values["bootstrap.servers"] is None and connect is None:
        raise ConfigError(
            "bootstrap.servers is missing; give host:port of a broker or more, or zookeeper.connect"
        )
    if values["bootstrap.servers"] is not None and connect is not None:
        raise ConfigError(
            "bootstrap.servers and zookeeper.connect are both given; leave one of the two out: "
            "each says how brokers are found"
        )
    if connect is None and timeout_ms is not None:
        raise ConfigError(
            "zookeeper.connection.timeout.ms needs zookeeper.connect; leave it out, or give both"
        )
    if connect is not None:
        values["zookeeper.connect"] = ConnectString.parse(connect)
        values["bootstrap.servers"] = ""
    values["zookeeper.connection.timeout.ms"] = timeout_ms or ZOOKEEPER_TIMEOUT_MS
