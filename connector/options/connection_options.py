"""The options of the connection to a cluster, which source and sink share."""

from dataclasses import dataclass

from connector.errors import OptionError
from connector.options.given_options import INT32_MAX, GivenOptions, bad_option

DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_METADATA_MAX_AGE_MS = 10_000
"""How long a new partition may go unseen; Kafka's 300 s is long for a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The connection to a cluster. Equal options share a connection pool."""

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int


def parse_connection(given: GivenOptions) -> ConnectionOptions:
    """OptionError where no server is named, or where TLS or SASL is asked for."""
    servers = given.text("bootstrap.servers")
    if servers is None:
        raise OptionError(
            "MISSING_OPTION", "'kafka.bootstrap.servers' must be set, for example host1:9092"
        )
    protocol = given.text("security.protocol")
    if protocol is not None and protocol.strip().upper() != "PLAINTEXT":
        raise OptionError(
            "REFUSED_OPTION",
            f"'kafka.security.protocol' = '{protocol}' is not supported yet; only PLAINTEXT is",
        )
    return ConnectionOptions(
        bootstrap_servers=parse_servers("kafka.bootstrap.servers", servers),
        client_id=given.text("client.id") or "headrace-spark",
        request_timeout_ms=given.integer("request.timeout.ms", low=1, high=INT32_MAX)
        or DEFAULT_REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=given.integer("metadata.max.age.ms", low=1, high=INT32_MAX)
        or DEFAULT_METADATA_MAX_AGE_MS,
    )


def parse_servers(name: str, text: str) -> str:
    """The addresses of the option `name`, checked, without blanks."""
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise bad_option(name, "host:port[,host:port…]", text)
    if not addresses:
        raise bad_option(name, "host:port[,host:port…]", text)
    return ",".join(addresses)
