"""Runs a registry: a socket, what it follows, uvicorn, and an orderly end."""

import contextlib
from collections.abc import Callable

from headrace_console.http.listening import bound, server_on
from headrace_registry.access.principals import Principals
from headrace_registry.http.application import Application
from headrace_registry.registry_service import RegistryService
from headrace_registry.registry_settings import RegistrySettings
from storage_engine.client.security.security_rows import Given

KEPT_ALIVE_S = 60
"""Clients keep idle connections, and few take the end of one well."""


class RegistryServer:
    """The server of one registry."""

    def __init__(
        self,
        settings: RegistrySettings,
        producer_security: Given,
        *,
        on_ready: Callable[[str], None] = lambda url: None,
    ) -> None:
        """`on_ready` gets the URL once requests are answered. ConfigError for unsafe settings, and
        for an address that can't be bound."""
        settings.check()
        self._socket = bound(settings.host, settings.port, who="the registry", option="--listen")
        port = int(self._socket.getsockname()[1])
        scheme = "https" if settings.uses_tls else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"{scheme}://{host}:{port}"
        self._service = RegistryService(settings, producer_security, port)
        self._principals = Principals(settings)
        self._server = server_on(
            self._socket,
            Application(self._service, self._principals),
            lambda: on_ready(self.url),
            certificate=settings.certificate,
            key=settings.key,
            kept_alive_s=KEPT_ALIVE_S,
        )

    def run(self) -> None:
        """Serve until `stop` or a signal. HeadraceError when the cluster can't be used."""
        with contextlib.closing(self._socket):
            try:
                self._service.start()
                self._server.run(sockets=[self._socket])
            finally:
                self._service.close()
                self._principals.close()

    def stop(self) -> None:
        """Stop the server, from any thread."""
        self._server.should_exit = True
