"""The settings of a consumer: names and defaults are those of Kafka 4's consumer.

Invalid values and combinations are refused here. Source: R-CLI2; KIP-62, KIP-345.
"""

from dataclasses import dataclass

from storage_engine.client.cluster import UNKNOWN_TOPIC_WAIT_MS, Cluster
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.client.security.security_rows import SECURITY_KEYS, Given
from storage_engine.client.settings import (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    DEFAULT_API_TIMEOUT_MS,
    FETCH_MAX_BYTES,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    boolean,
    by_key,
    integer,
    isolation_level,
    milliseconds,
    one_of,
    parse_settings,
    pop_security,
    text,
)
from storage_engine.core.errors import ConfigError

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
CLASSIC_PROTOCOL, CONSUMER_PROTOCOL = "classic", "consumer"

SETTINGS = by_key(
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    text("group.id", "The group that the consumer reads with, or commits for."),
    text(
        "group.instance.id",
        "The name of a static member: it gets its partitions back after a restart.",
    ),
    one_of(
        "group.protocol",
        (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
        CLASSIC_PROTOCOL,
        "Whether a member assigns the partitions of the group (classic), or the brokers, one by one"
        " while the others are read on (consumer).",
    ),
    text(
        "group.remote.assignor",
        "How brokers assign partitions, uniform or range; not set: as they like.",
    ),
    one_of(
        "auto.offset.reset",
        (EARLIEST, LATEST, NONE),
        LATEST,
        "Where reading begins when no offset is committed, or it is out of range; none: an error.",
    ),
    boolean(
        "enable.auto.commit",
        None,
        "Whether offsets are committed in the background; not set: where there is a group.id.",
    ),
    milliseconds("auto.commit.interval.ms", 5_000, "The time between such commits.", minimum=0),
    isolation_level("read_uncommitted"),
    milliseconds(
        "session.timeout.ms",
        45_000,
        "The group takes a member without a heartbeat for so long to be dead.",
    ),
    milliseconds("heartbeat.interval.ms", 3_000, "The time between heartbeats."),
    milliseconds(
        "max.poll.interval.ms", 300_000, "A member that does not poll for so long leaves the group."
    ),
    integer("max.poll.records", 500, "A poll returns so many records at most.", minimum=1),
    FETCH_MAX_BYTES,
    milliseconds(
        "fetch.max.wait.ms", 500, "A leader without records holds a fetch so long.", minimum=0
    ),
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    DEFAULT_API_TIMEOUT_MS,
)

_OF_CLASSIC = {
    "session.timeout.ms": "set consumer.session.timeout.ms with 'headrace groups settings'",
    "heartbeat.interval.ms": "set consumer.heartbeat.interval.ms with 'headrace groups settings'",
    "partition.assignment.strategy": "group.remote.assignor names how brokers assign",
}
"""Settings that only the classic protocol has, with what takes their place."""

_BY_FIELD = {key: key.replace(".", "_") for key in SETTINGS if key not in SECURITY_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """`SETTINGS`, with _ for the dots; those of security are one value. Times are milliseconds,
    sizes bytes."""

    bootstrap_servers: str
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    metadata_max_age_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    security: ClientSecurity

    @classmethod
    def of(cls, config: Given) -> "ConsumerConfig":
        """ConfigError of one line for a wrong key or value."""
        _check_protocol(config)
        values = parse_settings(config, SETTINGS, client="consumer")
        security = pop_security(values)
        if values["bootstrap.servers"] is None:
            raise ConfigError("bootstrap.servers is missing; give host:port of a broker or more")
        protocol = values["group.protocol"]
        if protocol == CLASSIC_PROTOCOL and values["group.remote.assignor"] is not None:
            raise ConfigError(
                "group.remote.assignor can't be set with group.protocol=classic: a member assigns"
            )
        for key in ("group.instance.id", "enable.auto.commit"):
            if values[key] and values["group.id"] is None:
                raise ConfigError(f"{key} needs a group.id; give one, or leave {key} out")
        if values["enable.auto.commit"] is None:
            values["enable.auto.commit"] = values["group.id"] is not None
        heartbeat_ms, session_ms = values["heartbeat.interval.ms"], values["session.timeout.ms"]
        if heartbeat_ms >= session_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {heartbeat_ms}; it must be less than "
                f"session.timeout.ms ({session_ms}), a third of it at most"
            )
        fields = {_BY_FIELD[key]: value for key, value in values.items()}
        return cls(**fields, security=security)

    def most_records(self, max_records: int | None) -> int:
        """How many records a `poll` returns at most. ConfigError where that is below 1."""
        limit = self.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ConfigError(f"max_records is {max_records}; it must be 1 or more")
        return limit

    def cluster(
        self,
        *,
        deadline_ms: int | None = None,
        unknown_topic_wait_ms: int = UNKNOWN_TOPIC_WAIT_MS,
    ) -> Cluster:
        """Connections to the brokers, for one thread; none is opened yet."""
        return Cluster(
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            deadline_ms=self.default_api_timeout_ms if deadline_ms is None else deadline_ms,
            unknown_topic_wait_ms=unknown_topic_wait_ms,
            security=self.security,
        )


def _check_protocol(config: Given) -> None:
    """ConfigError for a setting of the classic protocol beside group.protocol=consumer."""
    if not hasattr(config, "keys") or config.get("group.protocol") != CONSUMER_PROTOCOL:
        return
    for key, instead in _OF_CLASSIC.items():
        if key in config:
            raise ConfigError(f"{key} can't be set with group.protocol=consumer: {instead}")
