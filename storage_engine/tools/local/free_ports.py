"""Finds free ports on this host.

A port is checked by binding it as a broker does.

Free ports are chosen below the range from which the kernel takes the ports of outgoing connections.
A broker that is down for a while would otherwise lose its port to some connection, or even to a
peer that tries to reach it: on the loopback, a connect to a port that nobody listens on succeeds
when the kernel picks that very port as its source.
"""

import random
import socket
from collections.abc import Collection
from pathlib import Path

LOWEST_FREE_PORT = 10_000
HIGHEST_PORT = 65_535
_USUAL_EPHEMERAL_START = 32_768
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES_PER_PORT = 500


def is_port_free(host: str, port: int) -> bool:
    """Whether a listener could bind now.

    Connections that linger in TIME_WAIT don't count, as for a broker.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def find_free_port(host: str, *, avoid: Collection[int] = ()) -> int:
    """A port that was free a moment ago; the caller must be ready to try another.

    OSError when none is left.
    """
    ceiling = _ephemeral_start()
    if ceiling <= LOWEST_FREE_PORT + 1000:
        ceiling = HIGHEST_PORT
    chooser = random.SystemRandom()
    for _ in range(_TRIES_PER_PORT):
        port = chooser.randrange(LOWEST_FREE_PORT, ceiling)
        if port not in avoid and is_port_free(host, port):
            return port
    raise OSError(f"no free port between {LOWEST_FREE_PORT} and {ceiling} on {host}")


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL_START
