"""The settings of a `ConsumerConnector`.

Invalid values are refused here. Names are those of Kafka's consumers; the defaults are the
documented ones. Source: R-CLI3.
"""

from dataclasses import dataclass

from storage_engine.client.consumer import consumer_config
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.security.security_rows import SECURITY_KEYS, Given
from storage_engine.client.settings import (
    boolean,
    by_key,
    milliseconds,
    one_of,
    parse_settings,
    pop_zookeeper_tls,
    text,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import BY_PROCESS, NO_PROOF
from storage_engine.core.settings.zookeeper_settings import ZOOKEEPER_TLS_SETTINGS, ZooKeeperTls
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.consumer_znodes import group_problem

_OF_STREAMS = (
    "client.id",
    "auto.offset.reset",
    "isolation.level",
    "max.poll.records",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "request.timeout.ms",
    "default.api.timeout.ms",
)
"""The settings that streams share with `Consumer`."""

_NOBODY = "unknown:9092"
"""A placeholder until the brokers are known from ZooKeeper."""

SETTINGS = by_key(
    text("zookeeper.connect", "The servers of the ensemble, and the path of the cluster."),
    text(
        "bootstrap.servers",
        "Brokers that are asked for topics and partitions (default: their znodes tell), so that "
        "the group can meet in another ZooKeeper than the brokers'.",
    ),
    milliseconds(
        "metadata.max.age.ms", 10_000, "Brokers of bootstrap.servers are asked again after so long."
    ),
    milliseconds(
        "zookeeper.session.timeout.ms",
        6_000,
        "The partitions of a consumer that was killed are read by nobody for so long; ZooKeeper "
        "may allow another time than is asked for.",
    ),
    one_of(
        "consumer.death.proof",
        (BY_PROCESS, NO_PROOF),
        BY_PROCESS,
        "With process, members of one machine see each other's processes end and do not wait for "
        "that time; what closes a member's session is then in a znode for the others. With none "
        "they wait.",
    ),
    milliseconds(
        "zookeeper.connection.timeout.ms", 6_000, "ZooKeeper is waited for so long at the start."
    ),
    *ZOOKEEPER_TLS_SETTINGS,
    text("group.id", "The group whose consumers share the partitions."),
    boolean("enable.auto.commit", True, "Whether offsets are committed in the background."),
    milliseconds("auto.commit.interval.ms", 5_000, "The time between such commits."),
    *(consumer_config.SETTINGS[key] for key in _OF_STREAMS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """`SETTINGS`, checked. Times are milliseconds."""

    zookeeper_connect: str
    bootstrap_servers: str | None
    """None: brokers, topics and leaders are read from the znodes of the brokers."""
    metadata_max_age_ms: int
    session_timeout_ms: int
    connection_timeout_ms: int
    zookeeper_tls: ZooKeeperTls | None
    sees_death: bool
    """Whether the end of a member's process is proof, of others and of this one."""
    group_id: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    streams: ConsumerConfig
    """The settings of the fetching cluster client; its list of brokers is replaced."""

    @classmethod
    def of(cls, config: Given) -> "ConnectorConfig":
        """ConfigError of one line for a wrong key or value."""
        values = parse_settings(config, SETTINGS, client="ZooKeeper consumer")
        for key in ("zookeeper.connect", "group.id"):
            if values[key] is None:
                raise ConfigError(f"{key} is missing; a consumer group in ZooKeeper needs it")
        if problem := group_problem(values["group.id"]):
            raise ConfigError(f"group.id: {problem}")
        ConnectString.parse(values["zookeeper.connect"])
        streams = {key: values[key] for key in _OF_STREAMS}
        security = {key: values[key] for key in SECURITY_KEYS if values[key] is not None}
        return cls(
            zookeeper_connect=values["zookeeper.connect"],
            bootstrap_servers=values["bootstrap.servers"],
            metadata_max_age_ms=values["metadata.max.age.ms"],
            session_timeout_ms=values["zookeeper.session.timeout.ms"],
            connection_timeout_ms=values["zookeeper.connection.timeout.ms"],
            zookeeper_tls=pop_zookeeper_tls(values),
            sees_death=values["consumer.death.proof"] == BY_PROCESS,
            group_id=values["group.id"],
            enable_auto_commit=values["enable.auto.commit"],
            auto_commit_interval_ms=values["auto.commit.interval.ms"],
            streams=ConsumerConfig.of(
                {
                    **streams,
                    **security,
                    "bootstrap.servers": values["bootstrap.servers"] or _NOBODY,
                    "group.id": values["group.id"],
                }
            ),
        )
