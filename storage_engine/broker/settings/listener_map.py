"""All listeners of a broker: where it listens, what it advertises, and by which of them brokers
talk to each other.

`listener.security.protocol.map` gives each name its protocol, `advertised.listeners` the addresses
for others. The listener for brokers is the one that `inter.broker.listener.name` names, else the
one whose name is `security.inter.broker.protocol`. Each contradiction is an error of one line.
Source: KIP-103.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from storage_engine.broker.settings.listener import NAME, Listener, Protocols
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import PROTOCOL_NAMES, SecurityProtocol
from storage_engine.core.settings.setting import SettingValue

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
    """A listener that is not among them is served, but named to nobody."""
    inter_broker: Listener
    """The advertised listener that other brokers connect to."""

    @classmethod
    def of(cls, settings: ListenerSource) -> "ListenerMap":
        """ConfigError when they contradict each other."""
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
        """The listener of that name as it listens; KeyError when there is none."""
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
        f"{key}={name}: brokers talk to each other by a listener of that name, and there is none:"
        f" set {INTER_BROKER_NAME} to one of {names}"
    )
