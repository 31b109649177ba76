"""What a `ConsumerConnector` can be told.

Rule: impossible values are refused here. Names are those of Kafka's consumers; the defaults are the
documented ones. Source: R-CLI3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage_engine.client.consumer import consumer_config
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.settings import Setting, boolean, integer, parse_settings, text
from storage_engine.core.errors import ConfigError
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
"""As for `Consumer`."""

_NOBODY = "unknown:9092"
"""Takes the place of brokers until ZooKeeper tells them."""

SETTINGS: Mapping[str, Setting] = {
    "zookeeper.connect": Setting(None, text),
    "zookeeper.session.timeout.ms": Setting(6_000, integer(1)),
    "zookeeper.connection.timeout.ms": Setting(6_000, integer(1)),
    "group.id": Setting(None, text),
    "enable.auto.commit": Setting(True, boolean),
    "auto.commit.interval.ms": Setting(5_000, integer(1)),
    **{key: consumer_config.SETTINGS[key] for key in _OF_STREAMS},
}
"""By key. A session's timeout is how long the partitions of a consumer that was killed are read by
nobody; ZooKeeper may allow another than is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """`SETTINGS`, checked. Times are milliseconds."""

    zookeeper_connect: str
    session_timeout_ms: int
    connection_timeout_ms: int
    group_id: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    streams: ConsumerConfig
    """Of what reads; its brokers are to be replaced."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ConnectorConfig":
        """ConfigError of one line for a wrong key or value."""
        values = parse_settings(config, SETTINGS, client="ZooKeeper consumer")
        for key in ("zookeeper.connect", "group.id"):
            if values[key] is None:
                raise ConfigError(f"{key} is missing; a group that meets in ZooKeeper needs it")
        if problem := group_problem(values["group.id"]):
            raise ConfigError(f"group.id: {problem}")
        ConnectString.parse(values["zookeeper.connect"])
        streams = {key: values[key] for key in _OF_STREAMS}
        return cls(
            zookeeper_connect=values["zookeeper.connect"],
            session_timeout_ms=values["zookeeper.session.timeout.ms"],
            connection_timeout_ms=values["zookeeper.connection.timeout.ms"],
            group_id=values["group.id"],
            enable_auto_commit=values["enable.auto.commit"],
            auto_commit_interval_ms=values["auto.commit.interval.ms"],
            streams=ConsumerConfig.of(
                {**streams, "bootstrap.servers": _NOBODY, "group.id": values["group.id"]}
            ),
        )
