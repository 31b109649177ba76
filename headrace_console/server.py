"""Runs the console: a socket, uvicorn, and an orderly end."""

import contextlib
from collections.abc import Callable

from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.application import application
from headrace_console.http.listening import bound, server_on
from headrace_console.http.server_state import ServerState, allowed_hosts
from headrace_console.screens.timeline import StateChangeSource


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
        self._server = server_on(
            self._socket,
            application(state, hosts=allowed_hosts(settings, self._port)),
            lambda: on_ready(self.url),
            certificate=settings.certificate,
            key=settings.key,
            trusted_proxies=settings.trusted_proxies,
            lifespan=True,
        )

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
