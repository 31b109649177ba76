"""Runs a registry: a socket, what it follows, uvicorn, and an orderly end."""

import contextlib
from collections.abc import Callable

import uvicorn

from headrace_console.http.bounded_protocol import BoundedProtocol
from headrace_console.http.listening import AnnouncingServer, bound
from headrace_registry.access.principals import Principals
from headrace_registry.http.application import Application
from headrace_registry.registry_service import RegistryService
from headrace_registry.registry_settings import RegistrySettings
from storage_engine.client.security.security_rows import Given
from storage_engine.core.errors import ConfigError

MOST_CONNECTIONS = 200
"""Each may send a large schema."""
END_TIMEOUT_S = 5
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
        config = uvicorn.Config(
            Application(self._service, self._principals),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEPT_ALIVE_S,
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
