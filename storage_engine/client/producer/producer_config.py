"""What a producer can be told: names and defaults are those of Kafka 4's producer, but for
`batch.size`: a batch costs as much time here as a hundred records.

Rule: impossible values and combinations are refused here. Without `retries` the delivery timeout
alone ends them. Source: R-CLI1; KIP-91, KIP-1030 (linger.ms).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from storage_engine.zookeeper.connect_string import ConnectString

_LARGEST_BYTES = 256 << 20
"""Of a batch or a request: Arrow's offsets, and answers to others, are int32."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _acks(value: Any) -> int:
    acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(value).lower())
    if acks is None or isinstance(value, bool):
        raise ValueError("all (-1), 1 or 0")
    return acks


SETTINGS: Mapping[str, Setting] = {
    "bootstrap.servers": Setting(None, servers),
    "zookeeper.connect": Setting(None, text),
    "zookeeper.connection.timeout.ms": Setting(None, integer(1)),
    "client.id": Setting("headrace", text),
    "acks": Setting(-1, _acks),
    "enable.idempotence": Setting(None, boolean),
    "max.in.flight.requests.per.connection": Setting(5, integer(1)),
    "batch.size": Setting(65_536, integer(1, _LARGEST_BYTES)),
    "linger.ms": Setting(5, integer(0)),
    "compression.type": Setting("none", one_of(*_CODECS)),
    "buffer.memory": Setting(32 << 20, integer(1, 1 << 50)),
    "max.block.ms": Setting(60_000, integer(0)),
    "max.request.size": Setting(1 << 20, integer(1, _LARGEST_BYTES)),
    "retries": Setting(None, integer(0)),
    "delivery.timeout.ms": Setting(120_000, integer(1)),
    "request.timeout.ms": Setting(30_000, integer(1)),
    "metadata.max.age.ms": Setting(300_000, integer(1)),
    "transactional.id": Setting(None, text),
    "transaction.timeout.ms": Setting(60_000, integer(1)),
}
"""By key. `enable.idempotence` is on unless `acks` is not all. `zookeeper.connect` stands instead
of `bootstrap.servers`: brokers are found through ZooKeeper. `retries` bounds how often a batch is
sent again, within the delivery timeout."""

ZOOKEEPER_TIMEOUT_MS = 6_000
"""The default of `zookeeper.connection.timeout.ms`."""

_BY_FIELD = {key: key.replace(".", "_") for key in SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """`SETTINGS`, with _ for the dots. Times are milliseconds, sizes bytes."""

    bootstrap_servers: str
    """Empty with `zookeeper_connect`."""
    zookeeper_connect: ConnectString | None
    zookeeper_connection_timeout_ms: int
    client_id: str
    acks: int
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    batch_size: int
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

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ProducerConfig":
        """ConfigError of one line for a wrong key or value."""
        values = parse_settings(config, SETTINGS, client="producer")
        _check_discovery(values)
        acks = values["acks"]
        if values["enable.idempotence"] is None:
            values["enable.idempotence"] = acks == -1
        elif values["enable.idempotence"] and acks != -1:
            raise ConfigError(f"enable.idempotence needs acks=all, not {acks}; leave one of them")
        if values["transactional.id"] is not None and not values["enable.idempotence"]:
            raise ConfigError("transactional.id needs acks=all and enable.idempotence; leave them")
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
        return cls(**{_BY_FIELD[key]: value for key, value in values.items()})


def _check_discovery(values: dict[str, Any]) -> None:
    """One way to find brokers, and what belongs to it."""
    connect, timeout_ms = values["zookeeper.connect"], values["zookeeper.connection.timeout.ms"]
    if values["bootstrap.servers"] is None and connect is None:
        raise ConfigError(
            "bootstrap.servers is missing; give host:port of a broker or more, or zookeeper.connect"
        )
    if values["bootstrap.servers"] is not None and connect is not None:
        raise ConfigError(
            "bootstrap.servers and zookeeper.connect are both given; leave one of them: each says "
            "how brokers are found"
        )
    if connect is None and timeout_ms is not None:
        raise ConfigError(
            "zookeeper.connection.timeout.ms needs zookeeper.connect; leave it, or give both"
        )
    if connect is not None:
        values["zookeeper.connect"] = ConnectString.parse(connect)
        values["bootstrap.servers"] = ""
    values["zookeeper.connection.timeout.ms"] = timeout_ms or ZOOKEEPER_TIMEOUT_MS
