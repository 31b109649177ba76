"""kazoo's connections, with TLS where it is asked for.

kazoo makes a context of its own at each connection, from PEM files with a key that is not
encrypted, and believes the authorities of the system beside those that are named. Ours is made
once, of any store, and believes whom the settings name.

kazoo waits for the socket, not for what the library has read from it already: two answers in one
record would be one that comes with the next ping. `poll` knows what is there.
"""

import select
import ssl
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_NOT_YET = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class EncryptingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A handler of kazoo whose connections are made with `tls`, or in the clear without it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.tls_problem = ""
        """Why TLS has failed with a server, in words; empty after a connection."""

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        host = kwargs.get("hostname")
        plain = super().create_connection(*args, timeout=timeout, **kwargs)
        if self._tls is None:
            return plain
        try:
            # It bounds each read and write of the handshake; kazoo takes it away again.
            plain.settimeout(timeout)
            encrypted = self._tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            self._failed(error)
            raise
        except ValueError as error:
            # A name that can be on no certificate.
            plain.close()
            self._failed(error)
            raise ssl.SSLError(str(error)) from None
        self.tls_problem = ""
        return _Heard(encrypted, self._failed)

    def select(self, reads: list[Any], writes: list[Any], errors: list[Any], timeout: float) -> Any:
        return poll(reads, writes, timeout)

    def _failed(self, error: Exception) -> None:
        self.tls_problem = _words(error)


class _Heard:
    """A connection whose end is told, if TLS is the reason: ZooKeeper refuses a certificate only
    when the handshake is over for the client."""

    def __init__(self, connection: ssl.SSLSocket, failed: Callable[[Exception], None]) -> None:
        self._connection = connection
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        try:
            return self._connection.recv(size)
        except _NOT_YET:
            raise
        except ssl.SSLError as error:
            self._failed(error)
            raise


def poll(reads: list[Any], writes: list[Any], timeout_s: float) -> tuple[list[Any], ...]:
    """Return which of them are ready, in the form of `select.select`. One that fails is ready: its
    user then gets the error."""
    waiting = select.poll()
    for each in reads:
        waiting.register(each, select.POLLIN)
    for each in writes:
        waiting.register(each, select.POLLOUT)
    has_read = [each for each in reads if _pending(each)]
    ready = {descriptor for descriptor, _ in waiting.poll(0 if has_read else timeout_s * 1000)}
    return (
        [r for r in reads if r.fileno() in ready or r in has_read],
        [w for w in writes if w.fileno() in ready],
        [],
    )


def _pending(connection: Any) -> bool:
    return isinstance(connection, _Heard) and connection.pending() > 0


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "it ended the handshake; is that its secureClientPort?"
    if isinstance(error, TimeoutError):
        return "it does not answer the handshake; is that its secureClientPort?"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        words = reason.replace("_", " ").lower()
        if "PROTOCOL" in reason:
            return f"it speaks no version of zookeeper.ssl.enabled.protocols ({words})"
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return f"it refuses the certificate of zookeeper.ssl.keystore.location ({words})"
        return words
    return str(error) or type(error).__name__
