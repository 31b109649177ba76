"""The settings for log-ins: of clients at each listener, and of this broker at other brokers.

Each mistake is a ConfigError of one line, which names the setting and holds no secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from storage_engine.broker.settings.listener_map import Listener, ListenerKey, ListenerMap
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.jaas import JaasEntry, parse_jaas
from storage_engine.core.security.sasl_client import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.setting import SettingValue

ENABLED = "sasl.enabled.mechanisms"
INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
JAAS = "sasl.jaas.config"
USERS_FILE = "sasl.plain.users.file"
REAUTH = "connections.max.reauth.ms"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"

_USER_OPTION = "user_"
"""The prefix of options of PLAIN: user_alice="secret" is alice's password."""
_MODULES = {PLAIN: "PlainLoginModule"} | dict.fromkeys(SCRAM_MECHANISMS, "ScramLoginModule")


class SaslSource(Protocol):
    """The settings that log-ins are made from."""

    def get(self, key: str) -> SettingValue: ...
    def of_listener(self, listener: str, key: str, mechanism: str = "") -> SettingValue: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """The log-ins of one listener."""

    max_reauth_ms: Mapping[str, int]
    """Mechanism -> the time in ms after which a client logs in again; 0: never."""
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """User -> password, from sasl.jaas.config."""
    plain_users_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogIn:
    """The credentials with which this broker logs in to other brokers."""

    mechanism: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """All log-ins of a broker."""

    listeners: Mapping[str, SaslListener]
    """By name, the listeners that require a log-in."""
    inter_broker: BrokerLogIn | None = None
    """None: the listener for brokers requires no log-in."""

    @classmethod
    def of(cls, settings: SaslSource, listeners: ListenerMap) -> "SaslConfig":
        """Raises ConfigError when these settings would make a log-in impossible."""
        return cls(
            listeners={
                each.name: _listener(settings, each)
                for each in listeners.listening
                if each.protocol.uses_sasl
            },
            inter_broker=_inter_broker(settings, listeners.inter_broker),
        )

    @property
    def uses_scram(self) -> bool:
        return any(
            mechanism in each.max_reauth_ms
            for each in self.listeners.values()
            for mechanism in SCRAM_MECHANISMS
        )


def _listener(settings: SaslSource, listener: Listener) -> SaslListener:
    mechanisms = settings.of_listener(listener.name, ENABLED)
    if not isinstance(mechanisms, tuple) or not mechanisms:
        raise ConfigError(
            f"{_own(listener, ENABLED)} is missing: name the SASL mechanisms of the listener "
            f"{listener.name} ({listener.protocol.name})"
        )
    reauth = {}
    for mechanism in mechanisms:
        value = settings.of_listener(listener.name, REAUTH, mechanism)
        assert isinstance(value, int), REAUTH
        reauth[mechanism] = value
    keys_url = settings.of_listener(listener.name, JWKS, OAUTHBEARER)
    if OAUTHBEARER in mechanisms and keys_url is None:
        raise ConfigError(
            f"{_own(listener, JWKS)} is missing: OAUTHBEARER needs the public keys of the token "
            "issuer"
        )
    if PLAIN not in mechanisms:
        return SaslListener(max_reauth_ms=reauth)
    file = settings.of_listener(listener.name, USERS_FILE)
    jaas = _jaas(settings, listener, PLAIN)
    users = {
        name.removeprefix(_USER_OPTION): password
        for name, password in (jaas.options if jaas else {}).items()
        if name.startswith(_USER_OPTION)
    }
    if file is None and not users:
        raise ConfigError(
            f"{_own(listener, USERS_FILE)} is missing: PLAIN needs a file of users, or user_NAME="
            f" in {_own(listener, JAAS, PLAIN)}"
        )
    if not all(name and password for name, password in users.items()):
        raise ConfigError(f"{_own(listener, JAAS, PLAIN)}: a user_ option needs a name and a value")
    return SaslListener(
        max_reauth_ms=reauth,
        plain_users=users,
        plain_users_file=Path(file) if isinstance(file, str) else None,
    )


def _inter_broker(settings: SaslSource, listener: Listener) -> BrokerLogIn | None:
    if not listener.protocol.uses_sasl:
        return None
    mechanism = settings.get(INTER_BROKER)
    enabled = settings.of_listener(listener.name, ENABLED)
    if not isinstance(mechanism, str):
        raise ConfigError(
            f"{INTER_BROKER} is missing: brokers log in to each other at {listener.name}"
            f" ({listener.protocol.name})"
        )
    if not isinstance(enabled, tuple) or mechanism not in enabled:
        raise ConfigError(
            f"{INTER_BROKER}={mechanism}: {_own(listener, ENABLED)} must have it as well, since"
            " brokers log in to each other there"
        )
    if mechanism not in _MODULES:
        raise ConfigError(
            f"{INTER_BROKER}={mechanism}: brokers can log in to each other by"
            f" {', '.join(_MODULES)} only"
        )
    key = _own(listener, JAAS, mechanism)
    jaas = _jaas(settings, listener, mechanism)
    if jaas is None:
        raise ConfigError(
            f"{key} is missing: it has the username and password of this broker for other brokers"
        )
    username, password = jaas.options.get("username"), jaas.options.get("password")
    if not username or not password:
        raise ConfigError(f"{key} must have username= and password=, with which brokers log in")
    return BrokerLogIn(mechanism=mechanism, username=username, password=Secret(password))


def _jaas(settings: SaslSource, listener: Listener, mechanism: str) -> JaasEntry | None:
    value = settings.of_listener(listener.name, JAAS, mechanism)
    if not isinstance(value, Secret):
        return None
    key = _own(listener, JAAS, mechanism)
    entry = parse_jaas(value.reveal(), key=key)
    if entry.module != _MODULES[mechanism]:
        raise ConfigError(f"{key}: the login module of {mechanism} is {_MODULES[mechanism]}")
    return entry


def _own(listener: Listener, key: str, mechanism: str = "") -> str:
    return str(ListenerKey(listener=listener.name, mechanism=mechanism, key=key))
