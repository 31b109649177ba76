"""Opens the sockets of a client as its settings of security say.

Files in the settings are read when a client is made, so that a wrong file is an error there, in the
thread of the caller, and not at some connection later. A client without TLS never imports `ssl`.
"""

from typing import TYPE_CHECKING

from storage_engine.client.addresses import Address
from storage_engine.net.blocking import BlockingConnection
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool

if TYPE_CHECKING:
    import ssl

    from storage_engine.client.security.client_security import ClientSasl, ClientSecurity


CONNECT_TIMEOUT_MS = 3_000
"""The time for one address: an address that drops packets must leave time for the others."""


class ClientSockets:
    """Opens a client's sockets."""

    __slots__ = ("_context", "sasl")

    def __init__(self, security: "ClientSecurity | None") -> None:
        """`security` None: neither TLS nor a log-in. ConfigError for a file, a user or a password
        that can't be used."""
        self._context: ssl.SSLContext | None = None
        self.sasl: ClientSasl | None = None
        """How each connection logs in; None: not at all."""
        if security is None:
            return
        if security.tls is not None:
            from storage_engine.client.security.tls_context import tls_context

            self._context = tls_context(security.tls)
        if security.sasl is not None:
            from storage_engine.client.security.log_in import check

            check(security.sasl)
            self.sasl = security.sasl

    def prepare(self, deadline: Deadline) -> None:
        """Get the token that a connection needs, which may take longer than connecting.
        AuthenticationError or KafkaError."""
        if self.sasl is not None and self.sasl.tokens is not None:
            from storage_engine.client.security.oauth_tokens import bearer_token

            bearer_token(self.sasl.tokens, deadline)

    def open(self, address: Address, deadline: Deadline, pool: BufferPool) -> BlockingConnection:
        """Return a connection within CONNECT_TIMEOUT_MS, with TLS where the settings ask for it."""
        limit = deadline.no_later_than(CONNECT_TIMEOUT_MS)
        if self._context is None:
            return BlockingConnection.open(*address, limit, pool)
        from storage_engine.net.tls.blocking_tls import TlsConnection

        return TlsConnection.open_tls(*address, self._context, limit, pool)
