"""What a consumer can be told: names and defaults are those of Kafka 4's consumer.

Rule: impossible values and combinations are refused here. Source: R-CLI2; KIP-62, KIP-345.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage_engine.client.cluster import ISOLATION_LEVELS
from storage_engine.client.fetching.fetch import FETCH_BYTES
from storage_engine.client.settings import (
    Setting,
    boolean,
    integer,
    one_of,
    parse_settings,
    servers,
    text,
)
from storage_engine.core.errors import ConfigError

EARLIEST, LATEST, NONE = "earliest", "latest", "none"

SETTINGS: Mapping[str, Setting] = {
    "bootstrap.servers": Setting(None, servers),
    "client.id": Setting("headrace", text),
    "group.id": Setting(None, text),
    "group.instance.id": Setting(None, text),
    "auto.offset.reset": Setting(LATEST, one_of(EARLIEST, LATEST, NONE)),
    "enable.auto.commit": Setting(None, boolean),
    "auto.commit.interval.ms": Setting(5_000, integer(0)),
    "isolation.level": Setting("read_uncommitted", one_of(*ISOLATION_LEVELS)),
    "session.timeout.ms": Setting(45_000, integer(1)),
    "heartbeat.interval.ms": Setting(3_000, integer(1)),
    "max.poll.interval.ms": Setting(300_000, integer(1)),
    "max.poll.records": Setting(500, integer(1)),
    "fetch.max.bytes": Setting(FETCH_BYTES, integer(1, 256 << 20)),
    "fetch.max.wait.ms": Setting(500, integer(0)),
    "metadata.max.age.ms": Setting(300_000, integer(1)),
    "request.timeout.ms": Setting(30_000, integer(1)),
    "default.api.timeout.ms": Setting(60_000, integer(1)),
}
"""By key. `enable.auto.commit` is on where there is a `group.id`. `fetch.max.bytes`: of each
leader."""

_BY_FIELD = {key: key.replace(".", "_") for key in SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """`SETTINGS`, with _ for the dots. Times are milliseconds, sizes bytes."""

    bootstrap_servers: str
    client_id: str
    group_id: str | None
    group_instance_id: str | None
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

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ConsumerConfig":
        """ConfigError of one line for a wrong key or value."""
        values = parse_settings(config, SETTINGS, client="consumer")
        if values["bootstrap.servers"] is None:
            raise ConfigError("bootstrap.servers is missing; give host:port of a broker or more")
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
        return cls(**{_BY_FIELD[key]: value for key, value in values.items()})
