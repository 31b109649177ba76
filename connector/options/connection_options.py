"""The options of the connection to a cluster, which source and sink share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.options.given_options import INT32_MAX, GivenOptions, bad_option
from storage_engine.client.security.security_rows import SECRET_KEYS, SECURITY_KEYS
from storage_engine.core.errors import ConfigError

if TYPE_CHECKING:
    from storage_engine.client.security.client_security import ClientSecurity

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
    security: "ClientSecurity | None" = None
    """The security that the options alone give; with a file, see `client_security`."""
    config_file: str | None = None
    """`client.config.file`. Its contents never leave the process that reads it: what is sent to
    workers is its name."""
    open_options: tuple[tuple[str, str], ...] = ()
    """The options of security that hold no secret, beside a file, whose settings they override."""

    def client_security(self) -> "ClientSecurity | None":
        """How connections are encrypted and log in; None: neither. Reads the file, where there is
        one, on the machine that it is called on. OptionError where it can't be used."""
        if self.config_file is None:
            return self.security
        from storage_engine.client.settings import client_security, read_settings_file

        try:
            settings = read_settings_file(Path(self.config_file))
            of_security = {key: text for key, text in settings.items() if key in SECURITY_KEYS}
            return client_security({**of_security, **dict(self.open_options)}, client="format")
        except ConfigError as error:
            raise OptionError("BAD_OPTION", f"'client.config.file': {error}") from None


def parse_connection(given: GivenOptions) -> ConnectionOptions:
    """OptionError where no server is named, or where the options of security are not possible."""
    servers = given.text("bootstrap.servers")
    if servers is None:
        raise OptionError(
            "MISSING_OPTION",
            "'kafka.bootstrap.servers' must be set, for example host1:9092; for a table by each "
            "query, … FROM t WITH ('kafka.bootstrap.servers' = …), as Spark passes no others",
        )
    config_file = given.text("client.config.file")
    inline = {key: text for key in sorted(SECURITY_KEYS) if (text := given.text(key)) is not None}
    connection = ConnectionOptions(
        bootstrap_servers=parse_servers("kafka.bootstrap.servers", servers),
        client_id=given.text("client.id") or "headrace-spark",
        request_timeout_ms=given.integer("request.timeout.ms", low=1, high=INT32_MAX)
        or DEFAULT_REQUEST_TIMEOUT_MS,
        metadata_max_age_ms=given.integer("metadata.max.age.ms", low=1, high=INT32_MAX)
        or DEFAULT_METADATA_MAX_AGE_MS,
        security=None if config_file is not None else _security(inline),
        config_file=config_file,
        open_options=() if config_file is None else _open(inline),
    )
    # A file that is not right is an error of the query, not of a task.
    connection.client_security()
    return connection


def _security(inline: dict[str, str]) -> "ClientSecurity | None":
    if not inline:
        return None
    from storage_engine.client.settings import client_security

    try:
        return client_security(inline, client="format")
    except ConfigError as error:
        raise OptionError("BAD_OPTION", f"{error} (each may carry the prefix 'kafka.')") from None


def _open(inline: dict[str, str]) -> tuple[tuple[str, str], ...]:
    secrets = sorted(SECRET_KEYS & inline.keys())
    if secrets:
        raise OptionError(
            "BAD_OPTION",
            f"'{secrets[0]}' and 'client.config.file' are both given; move it into the file, which "
            "is there to keep secrets out of Spark's options",
        )
    return tuple(inline.items())


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
