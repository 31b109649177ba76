"""Opens the sockets of a client as its settings of security say.

The TLS context is made with the first connection, from the files as they are then: it takes some
milliseconds, and a client without TLS never imports `ssl`.
"""

from typing import TYPE_CHECKING

from storage_engine.client.addresses import Address
from storage_engine.client.security.client_security import ClientSasl, ClientSecurity
from storage_engine.net.blocking import BlockingConnection
from storage_engine.net.buffers import BufferPool
from storage_engine.net.deadline import Deadline

if TYPE_CHECKING:
    import ssl


class ClientSockets:
    """Of one client."""

    __slots__ = ("_context", "_tls", "sasl")

    def __init__(self, security: ClientSecurity) -> None:
        self._tls = security.tls
        self._context: ssl.SSLContext | None = None
        self.sasl: ClientSasl | None = security.sasl
        """How each connection logs in; None: not at all."""

    def prepare(self, deadline: Deadline) -> None:
        """Gets what all connections need, which may take longer than connecting: files are read,
        and a token is asked for. ConfigError, AuthenticationError or KafkaError."""
        if self._tls is not None and self._context is None:
            from storage_engine.client.security.tls_context import tls_context

            self._context = tls_context(self._tls)
        if self.sasl is not None and self.sasl.tokens is not None:
            from storage_engine.client.security.oauth_tokens import bearer_token

            bearer_token(self.sasl.tokens, deadline)

    def open(self, address: Address, deadline: Deadline, pool: BufferPool) -> BlockingConnection:
        """A connection, encrypted where the settings say so. Call `prepare` before."""
        if self._context is None:
            assert self._tls is None, "an encrypted connection was asked for before `prepare`"
            return BlockingConnection.open(*address, deadline, pool)
        from storage_engine.net.blocking_tls import TlsConnection

        return TlsConnection.open_tls(*address, self._context, deadline, pool)
