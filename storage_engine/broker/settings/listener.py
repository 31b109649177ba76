"""`listeners` and `advertised.listeners`: `PLAINTEXT://host:port`.

The error for a mistake is one line that names the setting.
"""

import re
import socket
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError

PROTOCOL = "PLAINTEXT"
ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
"""Hosts to listen on, but not to connect to."""

_FORM = re.compile(
    r"(?P<protocol>[A-Za-z0-9_]+)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s]*):(?P<port>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address of this broker."""

    host: str
    """Empty: all addresses of the machine."""
    port: int
    """0 to listen on: any free port."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{PROTOCOL}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Listener":
        """ConfigError that names `key` when `text` is not of the form."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"{key}={text}: must be {PROTOCOL}://host:port")
        if match["protocol"].upper() != PROTOCOL:
            raise ConfigError(f"{key}={text}: the protocol must be {PROTOCOL}, no other is served")
        port = int(match["port"])
        if port > 65535:
            raise ConfigError(f"{key}={text}: the port must be from 0 to 65535")
        return cls(host=match["host"].strip("[]"), port=port)


def parse_listener(entries: tuple[str, ...], *, key: str) -> Listener:
    """The one listener of a list."""
    if len(entries) != 1:
        raise ConfigError(
            f"{key}={','.join(entries)}: must be one listener, {PROTOCOL}://host:port; "
            "more than one are not served"
        )
    return Listener.parse(entries[0], key=key)


def advertised_for(listener: Listener) -> Listener:
    """The listener to advertise when only `listeners` is given: its host, or this machine's
    name."""
    if listener.host in ANY_ADDRESS:
        return Listener(host=socket.gethostname(), port=listener.port)
    return listener


def check_advertised(listener: Listener, *, key: str) -> None:
    """ConfigError for an address that nobody can connect to."""
    if listener.host in ANY_ADDRESS:
        raise ConfigError(f"{key}={listener}: nobody can connect to that host, name this machine")
    if listener.port == 0:
        raise ConfigError(f"{key}={listener}: nobody can connect to port 0")
