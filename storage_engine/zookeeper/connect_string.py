"""`zookeeper.connect`: `host:port,host:port/chroot`.

An error in it is reported in one line.
"""

from dataclasses import dataclass

from storage_engine.core.errors import ConfigError

DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectString:
    """The addresses of ZooKeeper, and the node below which this cluster has its nodes."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    """Empty, or `/a/b` without a slash at the end."""

    @property
    def hosts(self) -> str:
        """The servers alone, comma-separated."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def __str__(self) -> str:
        return self.hosts + self.chroot

    @classmethod
    def parse(cls, text: str) -> "ConnectString":
        """Parse the setting; ConfigError when `text` is not of the form."""
        hosts, slash, chroot = text.strip().partition("/")
        servers = tuple(_server(text, part.strip()) for part in hosts.split(","))
        levels = chroot.strip().rstrip("/").split("/") if slash else [""]
        if any(level in ("", ".", "..") for level in levels) and levels != [""]:
            raise _error(text, f"'/{chroot}' is not a ZooKeeper path")
        return cls(servers=servers, chroot="/" + "/".join(levels) if levels != [""] else "")


def _server(text: str, part: str) -> tuple[str, int]:
    host, port_text = _split(part)
    if not host or any(character.isspace() for character in host):
        raise _error(text, "a host name is missing")
    if port_text is None:
        return host, DEFAULT_PORT
    if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536):
        raise _error(text, f"'{port_text}' is not a port")
    return host, int(port_text)


def _split(part: str) -> tuple[str, str | None]:
    if part.startswith("["):  # an IPv6 address
        host, _, rest = part[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else None
    host, colon, port = part.partition(":")
    return host, port if colon else None


def _error(text: str, problem: str) -> ConfigError:
    return ConfigError(f"zookeeper.connect={text}: {problem}; write host:port,host:port[/path]")
