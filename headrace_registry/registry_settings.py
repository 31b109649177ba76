"""The settings of a registry and their checks: passwords cross networks encrypted only."""

from dataclasses import dataclass
from pathlib import Path

from headrace_console.console_settings import is_loopback
from storage_engine.client.addresses import parse_addresses
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_client import PASSWORD_MECHANISMS

DEFAULT_PORT = 8081
DEFAULT_TOPIC = "_schemas"
DEFAULT_GROUP = "schema-registry"
"""Confluent's: its registries and ours elect one writer together."""
LEAST_SESSION_MS, MOST_SESSION_MS = 1_000, 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Validated by `check`."""

    bootstrap_servers: str
    security: ClientSecurity | None = None
    """How the registry itself connects; users log in with its mechanism, if it has one."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    advertised_host: str | None = None
    """The name under which other registries reach this one."""
    advertised_port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    """The certificates by which this registry trusts the writer's; None: the system's."""
    topic: str = DEFAULT_TOPIC
    group: str = DEFAULT_GROUP
    session_timeout_ms: int = 10_000
    may_write: bool = True
    """Whether it may be elected writer."""
    has_typed_topics: bool = True
    """Whether the schemas of typed topics are subjects by themselves."""

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism of users' log-ins; None without authentication."""
        sasl = None if self.security is None else self.security.sasl
        return None if sasl is None else sasl.mechanism

    @property
    def uses_tls(self) -> bool:
        return self.certificate is not None

    @property
    def transactional_id(self) -> str:
        """One for all registries of a topic: who has it last is the writer."""
        return f"headrace-registry-{self.topic}"

    def check(self) -> None:
        """ConfigError for settings that are unsafe or do not go together."""
        parse_addresses(self.bootstrap_servers)
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key go together; give both, as PEM files")
        if self.mechanism is not None and self.mechanism not in PASSWORD_MECHANISMS:
            raise ConfigError(
                f"sasl.mechanism is {self.mechanism}; users log in at the registry with a name "
                f"and a password, so it must be one of {', '.join(PASSWORD_MECHANISMS)}"
            )
        if self.mechanism is not None and not is_loopback(self.host) and not self.uses_tls:
            raise ConfigError(
                f"other machines reach the address {self.host}, and users send their passwords: "
                "give --certificate and --key"
            )
        if not LEAST_SESSION_MS <= self.session_timeout_ms <= MOST_SESSION_MS:
            raise ConfigError(
                f"the session timeout is {self.session_timeout_ms} ms; it must be from "
                f"{LEAST_SESSION_MS} to {MOST_SESSION_MS}"
            )
