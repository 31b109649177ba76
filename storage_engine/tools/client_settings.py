"""`--command-config FILE`: the settings by which a command connects, in a Java properties file.

The commands use the settings of security, and the names and times that all clients have; what else
such a file has is for producers and consumers, and is left alone. Names and values are checked
before anything is connected.
"""

from pathlib import Path

from storage_engine.client.cluster import DEADLINE_MS, Cluster
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.client.settings import (
    CLIENT_ID,
    DEFAULT_API_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    Values,
    by_key,
    parse_settings,
    pop_security,
    read_settings_file,
)
from storage_engine.core.errors import ConfigError

_SETTINGS = by_key(CLIENT_ID, REQUEST_TIMEOUT_MS, DEFAULT_API_TIMEOUT_MS)


def file_settings(path: Path | None) -> dict[str, str]:
    """The settings of the file that every client has; none without a file. ConfigError names the
    file."""
    if path is None:
        return {}
    settings = read_settings_file(path)
    return {key: value for key, value in settings.items() if key in _SETTINGS}


def security_in(config: Path | None) -> ClientSecurity | None:
    """Return the security settings in `config`; None without a file. ConfigError names the file."""
    return None if config is None else _parsed(config)[2]


def _parsed(config: Path | None) -> tuple[dict[str, str], Values, ClientSecurity]:
    given = file_settings(config)
    try:
        values = parse_settings(given, _SETTINGS, client="command")
        return given, values, pop_security(values)
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None


def connect(
    bootstrap_servers: str,
    config: Path | None,
    *,
    request_timeout_ms: int | None = None,
    deadline_ms: int = DEADLINE_MS,
) -> Cluster:
    """A cluster as `config` says; the two times count where the file has none. ConfigError names
    the file."""
    given, values, security = _parsed(config)
    if request_timeout_ms is None or REQUEST_TIMEOUT_MS.name in given:
        request_timeout_ms = values[REQUEST_TIMEOUT_MS.name]
    if DEFAULT_API_TIMEOUT_MS.name in given:
        deadline_ms = values[DEFAULT_API_TIMEOUT_MS.name]
    assert request_timeout_ms is not None
    return Cluster(
        bootstrap_servers,
        client_id=values[CLIENT_ID.name],
        request_timeout_ms=request_timeout_ms,
        deadline_ms=deadline_ms,
        security=security,
    )
