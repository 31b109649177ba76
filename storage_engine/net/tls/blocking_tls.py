"""The blocking connection of clients over TLS: the same calls, deadlines and errors.

Rule: whether something can be read is found out by reading, never by the socket alone. TLS sends
records of its own (tickets, new keys) that make a socket readable and carry nothing, and it may
hold decrypted bytes while the socket is silent. Source: RFC 8446; the documentation of `ssl`.
"""

import select
import ssl
from collections.abc import Callable, Iterator, Sequence

from storage_engine.core.errors import AuthenticationError, HeadraceError
from storage_engine.net.blocking import (
    BlockingConnection,
    connected_socket,
    ended,
    network_error,
)
from storage_engine.net.deadline import Deadline
from storage_engine.net.frames import Piece, as_buffer
from storage_engine.net.limits import BufferPool

_JOINED_BYTES = 16 * 1024
"""The size of a TLS record: small pieces are joined up to it, since each write is a record."""


class TlsConnection(BlockingConnection):
    """A connection of which all bytes are encrypted. AuthenticationError when the certificate of
    either side is not accepted."""

    __slots__ = ("_has_received", "_is_agreed", "_tls")

    def __init__(self, sock: ssl.SSLSocket, name: str, pool: BufferPool | None) -> None:
        super().__init__(sock, name, pool)
        self._tls = sock
        # With TLS 1.3 a server judges the client's certificate after the client is done.
        self._has_received = False
        # Whether the handshake is done.
        self._is_agreed = False

    @classmethod
    def open_tls(
        cls,
        host: str,
        port: int,
        context: ssl.SSLContext,
        deadline: Deadline,
        pool: BufferPool | None = None,
    ) -> "TlsConnection":
        """Connects and agrees on keys, both before the deadline."""
        name = f"{host}:{port}"
        sock = connected_socket(host, port, name, deadline)
        try:
            wrapped = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            sock.close()
            raise network_error(name, f"TLS can't begin: {error}") from None
        connection = cls(wrapped, name, pool)
        connection._done(wrapped.do_handshake, deadline, "the TLS handshake was not done")
        connection._is_agreed = True
        return connection

    def send(self, pieces: Sequence[Piece], deadline: Deadline) -> None:
        self._opened()
        for view in _joined(pieces):
            self._send_view(view, deadline)

    def _send_view(self, view: memoryview, deadline: Deadline) -> None:
        position = 0

        def send_rest() -> int:
            return self._tls.send(view[position:])

        while position < len(view):
            position += self._done(send_rest, deadline, "could not send a request")

    def readable(self) -> bool:
        if self.has_buffered:
            return True
        self._opened()
        try:
            received = self._tls.recv_into(self._frames.get_buffer(-1))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            # The next call meets the same error, and reports it.
            return True
        if received:
            self._frames.buffer_updated(received)
        return True

    @property
    def has_buffered(self) -> bool:
        # Of a closed connection: the socket then has no TLS state any more.
        is_open = self._socket is not None
        return super().has_buffered or (is_open and self._tls.pending() > 0)

    def _receive_into(self, target: memoryview, deadline: Deadline) -> int:
        self._opened()
        received = self._done(lambda: self._tls.recv_into(target), deadline, "no answer")
        if not received:
            self.close()
            raise ended(self.name) if self._has_received else network_error(self.name, _JUDGED)
        self._has_received = True
        return received

    def _done(self, step: Callable[[], int | None], deadline: Deadline, what: str) -> int:
        """The result of a call to the TLS socket, which may have to read before it can write, and
        the other way round."""
        while True:
            try:
                return step() or 0
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline, what)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, deadline, what)
            except OSError as error:
                self.close()
                if isinstance(error, ConnectionError) and self._is_agreed:
                    reason = error.strerror or str(error)
                    raise network_error(
                        self.name, reason if self._has_received else _JUDGED
                    ) from None
                raise tls_error(self.name, error) from None


def tls_error(name: str, error: OSError) -> HeadraceError:
    """The error of a connection to `name`: AuthenticationError where trying again is in vain."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(f"{name}: {_distrust(error)}")
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if reason in _NOT_TLS:
        return AuthenticationError(
            f"{name}: it does not speak TLS; is the port right, or is security.protocol to be "
            "PLAINTEXT or SASL_PLAINTEXT?"
        )
    if "ALERT" in reason and not reason.endswith(_PASSING):
        told = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return AuthenticationError(
            f"{name}: it refused the TLS connection: {told}; {_REMEDIES.get(told, _ASK)}"
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return network_error(
            name, "the connection was closed by the other side; does it speak TLS?"
        )
    if isinstance(error, ssl.SSLError):
        return network_error(name, f"TLS failed: {reason or error}")
    return network_error(name, error.strerror or str(error))


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "BAD_PACKET_LENGTH")
_PASSING = ("INTERNAL_ERROR", "USER_CANCELLED", "CLOSE_NOTIFY", "RECORD_MAC", "DECODE_ERROR")
"""Alerts that say nothing about certificates or settings."""

_JUDGED = (
    "the connection was closed after the TLS handshake; does the listener ask for a certificate of "
    "an authority that it knows (ssl.keystore.location, ssl.certificate.location)?"
)
_ASK = (
    "it may ask for a certificate (ssl.keystore.location, ssl.certificate.location) of an "
    "authority that it knows, or for another ssl.enabled.protocols"
)
_REMEDIES = {
    "certificate required": "give one with ssl.keystore.location or ssl.certificate.location",
    "unknown ca": (
        "it does not know the authority of the certificate that ssl.keystore.location or "
        "ssl.certificate.location names"
    ),
    "certificate expired": (
        "renew the certificate that ssl.keystore.location or ssl.certificate.location names, or "
        "check the clocks"
    ),
}
"""The remedy for each alert."""

_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_HOST, _WRONG_ADDRESS = 62, 64
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21, 27)


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    """The fault of the broker's certificate in words, with a remedy."""
    text = f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if error.verify_code in (_WRONG_HOST, _WRONG_ADDRESS):
        return (
            f"{text}; connect by a name that is in the certificate, or leave "
            "ssl.endpoint.identification.algorithm empty where names can't be right"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"{text}; give the authority that signed it with ssl.truststore.location or "
            "ssl.ca.location"
        )
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return f"{text}; renew it on the broker, or check the clocks"
    return text


def _joined(pieces: Sequence[Piece]) -> Iterator[memoryview]:
    """The pieces in their order, small ones joined."""
    joined = bytearray()
    for piece in pieces:
        view = memoryview(as_buffer(piece))
        if len(joined) + len(view) > _JOINED_BYTES:
            if joined:
                yield memoryview(joined)
                joined = bytearray()
            if len(view) > _JOINED_BYTES:
                yield view
                continue
        joined += view
    if joined:
        yield memoryview(joined)
