"""A socket to serve on, and a server that says when it serves: how the console and the registry
listen."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from headrace_console.http.bounded_protocol import BoundedProtocol
from storage_engine.core.errors import ConfigError

BACKLOG = 128
MOST_CONNECTIONS = 200
END_TIMEOUT_S = 5
"""After so many seconds open answers are cut when the server ends."""
KEPT_ALIVE_S = 5


class AnnouncingServer(uvicorn.Server):
    """Calls `on_ready` once it serves requests."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def server_on(
    sock: socket.socket,
    app: ASGIApp,
    on_ready: Callable[[], None],
    *,
    certificate: Path | None,
    key: Path | None,
    kept_alive_s: int = KEPT_ALIVE_S,
    trusted_proxies: Sequence[str] = (),
    lifespan: bool = False,
) -> AnnouncingServer:
    """A server of `app`, with TLS where there is a certificate. `lifespan`: whether `app` is told
    of its beginning and its end. ConfigError, with the socket closed, for certificates that can't
    be used."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        lifespan="on" if lifespan else "off",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=kept_alive_s,
        timeout_graceful_shutdown=END_TIMEOUT_S,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
        http=BoundedProtocol,
        ws="none",
    )
    try:
        config.load()
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"--certificate {certificate} and --key {key} can't be used: {error.strerror or error}"
        ) from None
    return AnnouncingServer(config, on_ready)


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
