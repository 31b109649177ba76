"""Tells clients why their handshake failed.

The event loops close a connection as soon as its handshake has failed. The alert that names the
cause, such as "unknown ca", is then still in the library's buffer, and the client sees a connection
that was lost. Here a handshake that has failed looks to the loop like one that waits for its
client: so the loop sends the alert. What the client says from then on is thrown away. It ends when
the client has closed, or when its time is over. Source: RFC 8446, section 6.2.
"""

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

OnRefused = Callable[[ssl.SSLError], None]

on_refused: ContextVar[OnRefused | None] = ContextVar("on_refused", default=None)
"""Set in the task that has the loop begin a handshake: called when that fails with an alert for the
client. The caller ends the connection if the client does not. Without it a handshake fails at
once."""


class AlertingHandshake(ssl.SSLObject):
    """A server's side of a connection, made by `AlertingContext`."""

    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _on_refused: OnRefused | None = None
    _is_refused = False

    def attend(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, on_refused: OnRefused | None
    ) -> None:
        """To be called before the handshake."""
        self._incoming, self._outgoing = incoming, outgoing
        self._on_refused = on_refused

    def do_handshake(self) -> None:
        """SSLWantReadError while something must be sent or received, also after a refusal."""
        if self._is_refused:
            self._wait_for_the_end()
        try:
            super().do_handshake()
            self._on_refused = None
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            refused = self._on_refused
            if refused is None or not self._outgoing.pending:
                raise
            self._is_refused = True
            refused(error)
            self._wait_for_the_end()

    def _wait_for_the_end(self) -> None:
        # Bytes that nobody takes would be memory that the client fills.
        self._incoming.read()
        raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the client has been sent an alert")


class AlertingContext(ssl.SSLContext):
    """A server's context, for an event loop."""

    sslobject_class = AlertingHandshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *more: Any,
        **options: Any,
    ) -> ssl.SSLObject:
        """As the library's, of which the loops ask for each connection."""
        made = super().wrap_bio(incoming, outgoing, *more, **options)
        assert isinstance(made, AlertingHandshake)
        made.attend(incoming, outgoing, on_refused.get())
        return made
