"""One listener of a broker: its name, its security protocol and an address, `NAME://host:port`.

The error for a mistake is one line that names the setting. All of a broker's listeners together are
a `ListenerMap`.
"""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import SecurityProtocol

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
    """In upper case."""
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
        """ConfigError that names `key` when `text` is not of the form, or when the listener has no
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
        """The listener to advertise when only `listeners` is given: its host, or this machine's
        name."""
        return replace(self, host=socket.gethostname()) if self.host in ANY_ADDRESS else self

    def check_advertised(self, *, key: str) -> None:
        """ConfigError for an address that nobody can connect to."""
        if self.host in ANY_ADDRESS:
            raise ConfigError(f"{key}={self}: nobody can connect to that host, name this machine")
        if self.port == 0:
            raise ConfigError(f"{key}={self}: nobody can connect to port 0")

    def collides_with(self, other: "Listener") -> bool:
        """Whether both can't listen on one machine."""
        same_host = self.host == other.host or bool({self.host, other.host} & ANY_ADDRESS)
        return self.port == other.port != 0 and same_host
