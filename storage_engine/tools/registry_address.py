"""Where a command finds a schema registry, and how it logs in there."""

from pathlib import Path

from storage_engine.client.schema_registry_http import RegistryAddress, parse_registry_urls
from storage_engine.client.security.client_security import ClientSecurity, ClientTls
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tools.client_settings import security_in
from storage_engine.tools.errors import UsageError

PATIENCE_MS = 10_000
"""How long a request is tried, unless the command says another time."""


def registry_address(
    given: str, config: Path | None, *, option: str, patience_ms: int | None = None
) -> RegistryAddress:
    """The registry at the URL, or several with commas, that an option has. The log-in is that of
    the URL, or else of the file, whose certificates count, too. UsageError; ConfigError."""
    return registry_at(given, security_in(config), option=option, patience_ms=patience_ms)


def registry_at(
    given: str,
    security: ClientSecurity | None,
    *,
    option: str = "--registry",
    patience_ms: int | None = None,
) -> RegistryAddress:
    """The same, with the settings of a file that was read."""
    try:
        urls, user_info = parse_registry_urls(given)
    except ConfigError as error:
        raise UsageError(f"{option} '{given}': {error}") from None
    return RegistryAddress(
        urls=urls,
        user_info=user_info or _user_info(security),
        tls=ClientTls() if security is None or security.tls is None else security.tls,
        patience_ms=PATIENCE_MS if patience_ms is None else patience_ms,
    )


def _user_info(security: ClientSecurity | None) -> Secret | None:
    sasl = None if security is None else security.sasl
    if sasl is None or sasl.password is None:
        return None
    return Secret(f"{sasl.username}:{sasl.password.reveal()}")
