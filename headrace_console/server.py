"""Runs the console: a socket, uvicorn, and an orderly end."""

import contextlib
from collections.abc import Callable

import uvicorn

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.application import application
from headrace_console.http.bounded_protocol import BoundedProtocol
from headrace_console.http.listening import AnnouncingServer, bound
from headrace_console.http.server_state import ServerState, allowed_hosts
from headrace_console.screens.timeline import StateChangeSource
from storage_engine.core.errors import ConfigError

MOST_CONNECTIONS = 200
END_TIMEOUT_S = 5
"""After so many seconds open streams are cut when the console ends."""


class ConsoleServer:
    """The server of one console."""

    def __init__(
        self,
        settings: ConsoleSettings,
        *,
        state_changes: StateChangeSource | None = None,
        on_ready: Callable[[str], None] = lambda url: None,
    ) -> None:
        """`on_ready` gets the URL once requests are answered. ConfigError for unsafe settings, and
        for an address that can't be bound."""
        settings.check()
        self._socket = bound(settings.address, settings.port, who="the console")
        self._port = int(self._socket.getsockname()[1])
        self.url = _url_of(settings, self._port)
        state = ServerState(settings, self._port, state_changes=state_changes)
        app = application(state, hosts=allowed_hosts(settings, self._port))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            lifespan="on",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=END_TIMEOUT_S,
            ssl_certfile=None if settings.certificate is None else str(settings.certificate),
            ssl_keyfile=None if settings.key is None else str(settings.key),
            http=BoundedProtocol,
            ws="none",
        )
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"--certificate {settings.certificate} and --key {settings.key} can't be used: "
                f"{error.strerror or error}"
            ) from None
        self._server = AnnouncingServer(config, lambda: on_ready(self.url))

    def run(self) -> None:
        """Serve until `stop` or a signal."""
        with contextlib.closing(self._socket):
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop the server, from any thread."""
        self._server.should_exit = True


def _url_of(settings: ConsoleSettings, port: int) -> str:
    scheme = "https" if settings.uses_tls else "http"
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{scheme}://{host}:{port}/"
