"""All listeners of a broker: where it listens, what it advertises, and by which of them brokers
talk to each other.

`listener.security.protocol.map` gives each name its protocol, `advertised.listeners` the addresses
for others. The listener for brokers is the one that `inter.broker.listener.name` names, else the
one whose name is `security.inter.broker.protocol`. Each contradiction is an error of one line.
Source: KIP-103.

One listener of a broker: its name, its security protocol and an address, `NAME://host:port`.

The error for a mistake is one line that names the setting. All of a broker's listeners together are
a `ListenerMap`.

Settings of one listener: `listener.name.<listener>.<setting>`, and of one SASL mechanism there,
`listener.name.<listener>.<mechanism>.<setting>`; both names in lower case or as they are.

They count in place of the setting without these names. The error for a mistake is one line that
names the key. Source: KIP-103, KIP-226.
"""

import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.sasl_client import MECHANISMS
from storage_engine.core.security.security_protocol import PROTOCOL_NAMES, SecurityProtocol
from storage_engine.core.settings.setting import Setting, SettingValue, unknown_key_error
from storage_engine.core.settings.settings import BY_BROKER_KEY

ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
"""Hosts to listen on, but not to connect to."""

NAME = r"[A-Za-z0-9_-]+"
_FORM = re.compile(rf"(?P<name>{NAME})://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s]*):(?P<port>\d+)")

Protocols = Mapping[str, SecurityProtocol]
"""The protocol of each listener, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address of this broker."""

    name: str = SecurityProtocol.PLAINTEXT.name
    """The name in upper case."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str
    """Empty: all addresses of the machine."""
    port: int
    """0 to listen on: any free port."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, protocols: Protocols, *, key: str) -> "Listener":
        """Raises ConfigError, naming `key`, when `text` has another form, or the listener has no
        protocol."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"{key}={text}: must be NAME://host:port, e.g. PLAINTEXT://:9092")
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(
                f"{key}={text}: the listener {name} has no security protocol: add"
                f" {name}:PROTOCOL to listener.security.protocol.map"
            )
        port = int(match["port"])
        if port > 65535:
            raise ConfigError(f"{key}={text}: the port must be from 0 to 65535")
        return cls(name=name, protocol=protocols[name], host=match["host"].strip("[]"), port=port)

    @property
    def advertised(self) -> "Listener":
        """The listener to advertise when only `listeners` is given: with its host, or this
        machine's name."""
        return replace(self, host=socket.gethostname()) if self.host in ANY_ADDRESS else self

    def check_advertised(self, *, key: str) -> None:
        """Raises ConfigError for an address that no client can connect to."""
        if self.host in ANY_ADDRESS:
            raise ConfigError(f"{key}={self}: nobody can connect to that host, name this machine")
        if self.port == 0:
            raise ConfigError(f"{key}={self}: nobody can connect to port 0")

    def collides_with(self, other: "Listener") -> bool:
        """Whether only one of the two can listen on one machine."""
        same_host = self.host == other.host or bool({self.host, other.host} & ANY_ADDRESS)
        return self.port == other.port != 0 and same_host


LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER_NAME = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"


class ListenerSource(Protocol):
    """The settings that listeners are made from."""

    def get(self, key: str) -> SettingValue: ...
    def items(self, key: str) -> tuple[str, ...]: ...
    def is_given(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerMap:
    """The listeners, in the order of the settings; each name once."""

    listening: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    """The listeners named to clients; others are served, but not named."""
    inter_broker: Listener
    """The advertised listener that other brokers connect to."""

    @classmethod
    def of(cls, settings: ListenerSource) -> "ListenerMap":
        """Raises ConfigError when the settings contradict each other."""
        protocols = _protocols(settings.items(PROTOCOL_MAP))
        listening = _parsed(settings.items(LISTENERS), protocols, key=LISTENERS)
        _refuse_collisions(listening)
        advertised = _advertised(settings.items(ADVERTISED), protocols, listening)
        return cls(
            listening=listening,
            advertised=advertised,
            inter_broker=_inter_broker(settings, advertised),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(listener.name for listener in self.listening)

    def named(self, name: str) -> Listener:
        """The listener of that name in `listening`; KeyError when there is none."""
        return {listener.name: listener for listener in self.listening}[name]


def _protocols(entries: Sequence[str]) -> Protocols:
    found: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, _, text = entry.partition(":")
        name, protocol = name.strip().upper(), SecurityProtocol.named(text)
        if re.fullmatch(NAME, name) is None or not text:
            raise ConfigError(f"{PROTOCOL_MAP}={entry}: must be NAME:PROTOCOL, e.g. INTERNAL:SSL")
        if protocol is None:
            raise ConfigError(
                f"{PROTOCOL_MAP}={entry}: there is no protocol {text}, there are {PROTOCOL_NAMES}"
            )
        if name in found:
            raise ConfigError(f"{PROTOCOL_MAP}={entry}: the listener {name} is listed twice")
        found[name] = protocol
    return found


def _parsed(entries: Sequence[str], protocols: Protocols, *, key: str) -> tuple[Listener, ...]:
    parsed = tuple(Listener.parse(entry, protocols, key=key) for entry in entries)
    name, times = Counter(listener.name for listener in parsed).most_common(1)[0]
    if times > 1:
        raise ConfigError(
            f"{key}={','.join(entries)}: the name {name} is listed twice: give each listener a name"
            f" of its own, and its protocol in {PROTOCOL_MAP}"
        )
    return parsed


def _refuse_collisions(listening: Sequence[Listener]) -> None:
    for one, other in combinations(listening, 2):
        if one.collides_with(other):
            raise ConfigError(
                f"{LISTENERS}={one},{other}: two listeners can't have one port: choose another for"
                f" {other.name}"
            )


def _advertised(
    entries: Sequence[str], protocols: Protocols, listening: Sequence[Listener]
) -> tuple[Listener, ...]:
    if not entries:
        return tuple(listener.advertised for listener in listening)
    advertised = _parsed(entries, protocols, key=ADVERTISED)
    known = {listener.name for listener in listening}
    for listener in advertised:
        listener.check_advertised(key=ADVERTISED)
        if listener.name not in known:
            raise ConfigError(
                f"{ADVERTISED}={listener}: {LISTENERS} has no {listener.name}, but"
                f" {', '.join(sorted(known))}: add it there, or leave it out here"
            )
    return advertised


def _inter_broker(settings: ListenerSource, advertised: Sequence[Listener]) -> Listener:
    is_named = settings.get(INTER_BROKER_NAME) is not None
    if is_named and settings.is_given(INTER_BROKER_PROTOCOL):
        raise ConfigError(
            f"{INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL} are both set: leave out one of them"
        )
    key = INTER_BROKER_NAME if is_named else INTER_BROKER_PROTOCOL
    name = str(settings.get(key)).upper()
    for listener in advertised:
        if listener.name == name:
            return listener
    names = ", ".join(listener.name for listener in advertised)
    raise ConfigError(
        f"{key}={name}: brokers connect to each other by a listener of that name, and there is "
        f"none: set {INTER_BROKER_NAME} to one of {names}"
    )


PREFIX = "listener.name."

_KEY_FORM = re.compile(rf"{re.escape(PREFIX)}(?P<listener>{NAME})\.(?P<rest>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerKey:
    """The parsed key of a listener's setting."""

    listener: str
    """The name in upper case."""
    mechanism: str = ""
    """Empty: all mechanisms of the listener."""
    key: str

    @classmethod
    def parse(cls, text: str) -> "ListenerKey":
        """Raises ConfigError when there is no such setting, or listeners can't have it."""
        match = _KEY_FORM.fullmatch(text)
        if match is None:
            raise ConfigError(f"'{text}' must be {PREFIX}<name of the listener>.<setting>")
        listener, rest = match["listener"].upper(), match["rest"]
        mechanism = ""
        if rest not in BY_BROKER_KEY:
            for each in MECHANISMS:
                if rest.lower().startswith(f"{each.lower()}."):
                    mechanism, rest = each, rest[len(each) + 1 :]
        setting = BY_BROKER_KEY.get(rest)
        if setting is None:
            known = [row.broker_key for row in BY_BROKER_KEY.values() if row.per_listener]
            raise unknown_key_error(rest, known, what=f"setting of a listener, as in '{text}',")
        if not setting.per_listener:
            raise ConfigError(f"'{text}': '{rest}' is the same for all listeners: set it as it is")
        if mechanism and not setting.per_mechanism:
            raise ConfigError(
                f"'{text}': '{rest}' is the same for all mechanisms: leave the mechanism out"
            )
        return cls(listener=listener, mechanism=mechanism, key=rest)

    @property
    def setting(self) -> Setting:
        return BY_BROKER_KEY[self.key]

    def __str__(self) -> str:
        mechanism = f"{self.mechanism.lower()}." if self.mechanism else ""
        return f"{PREFIX}{self.listener.lower()}.{mechanism}{self.key}"


def is_listener_key(key: str) -> bool:
    return key.startswith(PREFIX)
