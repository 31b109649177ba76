"""`max.connections.per.ip.overrides`: `host:number,host:number`.

The error for a mistake is one line that names the setting. Source: R-NET3.
"""

import socket
from collections.abc import Iterable

from storage_engine.core.errors import ConfigError

KEY = "max.connections.per.ip.overrides"


def parse_overrides(entries: Iterable[str]) -> dict[str, int]:
    """Host or address -> connections. ConfigError for another form, and for a host given twice."""
    found: dict[str, int] = {}
    for entry in entries:
        host, _, number = entry.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not host or not number.strip().isdecimal():
            raise ConfigError(f"{KEY}={entry}: must be host:number, e.g. 10.0.0.7:200")
        if host in found:
            raise ConfigError(f"{KEY}: {host} is listed twice")
        found[host] = int(number)
    return found


def by_address(overrides: dict[str, int]) -> dict[str, int]:
    """Replaces each host name by all of its addresses. Raises ConfigError for a name without
    any."""
    found = {}
    for host, number in overrides.items():
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError(f"{KEY}={host}:{number}: {host} has no address: {error}") from None
        found.update({str(address[4][0]): number for address in addresses})
    return found
