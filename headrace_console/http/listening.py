"""A socket to serve on, and a server that says when it serves."""

import socket
from collections.abc import Callable

import uvicorn

from storage_engine.core.errors import ConfigError

BACKLOG = 128


class AnnouncingServer(uvicorn.Server):
    """Calls `on_ready` once it serves requests."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def bound(address: str, port: int, *, who: str, option: str = "--port") -> socket.socket:
    """A socket that listens. ConfigError, which names the option of the port, when it can't."""
    try:
        infos = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        name = "--address" if option == "--port" else option
        raise ConfigError(
            f"{name} {address}: {error.strerror}; give an address of this machine"
        ) from None
    family, kind, protocol, _, where = infos[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        name = option if port else "--address" if option == "--port" else option
        remedy = f"give another {name}" + (", or 0 for a free one" if port else "")
        raise ConfigError(
            f"{who} can't listen on {address}:{port}: {error.strerror}; {remedy}"
        ) from None
    return sock
