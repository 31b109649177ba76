"""The console's settings and their checks: an address that others reach needs TLS and a log-in.
Source: R-CON3.
"""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from storage_engine.client.addresses import parse_addresses
from storage_engine.client.schema_registry_http import RegistryAddress
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_client import PASSWORD_MECHANISMS
from storage_engine.core.security.security_protocol import Secret

DEFAULT_PORT = 8480
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d{1,5})?", re.IGNORECASE)
LEAST_PASSWORD = 12
"""The fewest characters of the console's own password: it guards an open cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The limits from which on something is a problem."""

    stuck_after_ms: int = 60_000
    """How long a transaction may be open and hold up readers."""
    lag_after_ms: int = 60_000
    """How far a group may be behind, and how long a query's lag may take at its present rate."""
    disk_full_percent: float = 90.0
    certificate_days: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of a console, validated by `check`."""

    bootstrap_servers: str
    security: ClientSecurity | None = None
    """How to connect; of its log-in only the mechanism counts, each user logs in themselves."""
    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    certificate: Path | None = None
    key: Path | None = None
    password: Secret | None = None
    """The console's own password, for a cluster without authentication."""
    progress_token: Secret | None = None
    """The token that queries must send with their progress."""
    allowed_hosts: tuple[str, ...] = ()
    """Further Host headers, with the port unless it is the usual one, that browsers may send."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose X-Forwarded-For is trusted: failed log-ins are counted by
    the browser's address."""
    read_only: bool = False
    registry: RegistryAddress | None = None
    """The schema registry; where users log in, they log in there, too."""
    thresholds: Thresholds = Thresholds()
    cluster_name: str | None = None

    @property
    def shown_name(self) -> str:
        return self.cluster_name or self.bootstrap_servers

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism of users' log-ins; None without authentication."""
        sasl = None if self.security is None else self.security.sasl
        return None if sasl is None else sasl.mechanism

    @property
    def uses_tls(self) -> bool:
        return self.certificate is not None

    @property
    def needs_log_in(self) -> bool:
        return self.mechanism is not None or self.password is not None

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.address)

    def check(self) -> None:
        """ConfigError for settings that are unsafe or do not go together."""
        parse_addresses(self.bootstrap_servers)
        for name in self.allowed_hosts:
            if not _HOST.fullmatch(name):
                raise ConfigError(
                    f"--allowed-host '{name}' is not HOST:PORT, as browsers send it; give for "
                    "example console.example:8480"
                )
        for proxy in self.trusted_proxies:
            if not _is_address(proxy):
                raise ConfigError(
                    f"--trusted-proxy '{proxy}' is not an IP address; give the address from "
                    "which the proxy connects to the console"
                )
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key go together; give both, as PEM files")
        if self.mechanism is not None and self.mechanism not in PASSWORD_MECHANISMS:
            raise ConfigError(
                f"sasl.mechanism is {self.mechanism}; users log in at the console with a name and "
                f"a password, so it must be one of {', '.join(PASSWORD_MECHANISMS)}"
            )
        if self.mechanism is not None and self.password is not None:
            raise ConfigError(
                "--password-file is for a cluster without log-ins; remove it: the users of this "
                "cluster log in with their own passwords"
            )
        if self.password is not None and len(self.password.reveal()) < LEAST_PASSWORD:
            raise ConfigError(
                f"the password in --password-file has fewer than {LEAST_PASSWORD} characters; "
                "choose a longer password"
            )
        if self.registry is not None and self.mechanism is not None:
            _check_registry(self.registry)
        if not self.is_loopback and not (self.uses_tls and self.needs_log_in):
            missing = [] if self.uses_tls else ["--certificate and --key"]
            if not self.needs_log_in:
                missing.append("--password-file, or a cluster with log-ins")
            raise ConfigError(
                f"--address {self.address} can be reached by others, so it needs "
                f"{' and '.join(missing)}; without them use --address 127.0.0.1 and an ssh "
                "tunnel"
            )

    @property
    def wants_progress_token(self) -> bool:
        return self.progress_token is not None or self.needs_log_in or not self.is_loopback


def _check_registry(registry: RegistryAddress) -> None:
    """ConfigError for a registry that users' passwords must not be sent to."""
    if registry.user_info is not None:
        raise ConfigError(
            "--registry has a user in its URL; remove it: the users of this cluster log in at the "
            "registry with their own names and passwords"
        )
    for url in registry.urls:
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"--registry {url} would get the passwords of users unencrypted; give an https URL "
                "or one of this machine"
            )


def is_loopback(address: str) -> bool:
    """Whether only programs on this machine reach the address."""
    return address == "localhost" or (
        _is_address(address) and ipaddress.ip_address(address).is_loopback
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
