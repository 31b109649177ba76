"""The broker's side of a SASL log-in: one machine a mechanism, fed with what the client sends.

    respond(token) -> answer ... until `authenticated` says who the client is
                   \\-> LogInRefusedError

A refusal has the reason for the broker's log; the client is never told it, since it could be that
there is no such user. Source: RFC 4422, RFC 4616 (PLAIN), KIP-43.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from storage_engine.core.errors import HeadraceError
from storage_engine.core.printable import printable

_SHOWN_CHARACTERS = 64
"""Of a name that a stranger claims to have."""


class LogInRefusedError(HeadraceError):
    """A client did not show who it is. The text is for the broker's log and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """Who a client has shown to be."""

    name: str
    expires_at_ms: int | None = None
    """Wall clock time at which what it has shown is no longer valid; None: never."""


class SaslServerMechanism(Protocol):
    """One log-in by one mechanism."""

    @property
    def authenticated(self) -> Authenticated | None:
        """Set once the log-in has succeeded; no token is taken afterwards."""
        ...

    @property
    def claimed(self) -> str:
        """The name that the client claims, in a form for the log; empty while it is not known."""
        ...

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's token. LogInRefusedError ends the log-in."""
        ...


def shown(name: str) -> str:
    """A claimed name, in one line that is not too long."""
    short = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
    return printable(short)


class PlainServer:
    """PLAIN: the client sends [authorization id] NUL user NUL password."""

    def __init__(self, is_password_of: Callable[[str, str], bool]) -> None:
        """`is_password_of(user, password)` takes as long for a user that does not exist."""
        self._is_password_of = is_password_of
        self.authenticated: Authenticated | None = None
        self.claimed = ""

    def respond(self, token: bytes) -> bytes:
        if self.authenticated is not None:
            raise LogInRefusedError("it goes on after it has logged in")
        try:
            fields = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LogInRefusedError("its token is not UTF-8") from None
        if len(fields) != 3:
            raise LogInRefusedError(f"its token has {len(fields)} parts, not 3")
        authorization_id, user, password = fields
        self.claimed = shown(user)
        if not user or not password:
            raise LogInRefusedError("its user or password is empty")
        if authorization_id not in ("", user):
            raise LogInRefusedError("it asks to act for another user")
        if not self._is_password_of(user, password):
            raise LogInRefusedError("there is no such user, or the password is wrong")
        self.authenticated = Authenticated(name=user)
        return b""
