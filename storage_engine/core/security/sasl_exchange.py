"""The log-in on one connection, from the first request to the last re-authentication.

    state           event                                   becomes
    STARTING        handshake, mechanism known              TOKENS
    TOKENS          token, the mechanism wants another      TOKENS
    TOKENS          token, the client has shown who it is   AUTHENTICATED
    AUTHENTICATED   handshake, same mechanism               TOKENS, for the same principal
    any             anything else                           FAILED

Source: KIP-43, KIP-152, KIP-368.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.security.principal import Principal
from storage_engine.core.security.sasl_server import (
    Authenticated,
    LogInRefusedError,
    SaslServerMechanism,
    shown,
)

TOKENS_IN_REQUESTS = 1
"""From this version of SaslHandshake on tokens come in SaslAuthenticate requests."""

LIFETIME_MAX_MS = 2**31 - 1
"""24 days: a token may be valid for longer than a field or a timer can say."""


class SaslState(enum.Enum):
    """Where a log-in is."""

    STARTING = enum.auto()
    TOKENS = enum.auto()
    AUTHENTICATED = enum.auto()
    FAILED = enum.auto()


class SaslRefusal(KafkaError):
    """The log-in has failed. Its text is for the client; `reason` is for the log alone."""

    def __init__(self, text: str, code: ErrorCode, *, reason: str) -> None:
        super().__init__(text, code)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedMechanism:
    """A mechanism that a listener takes."""

    make: Callable[[], SaslServerMechanism]
    """A machine for one log-in."""
    max_reauth_ms: int = 0
    """After this time a client has to log in again; 0: never (`connections.max.reauth.ms`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAnswer:
    """The answer to a token."""

    token: bytes = field(repr=False)
    session_lifetime_ms: int | None = None
    """Set with the last token where the log-in lasts for a time: what is left of it."""


class SaslExchange:
    """Says what the client is told, and who it is. Each method raises SaslRefusal, after which
    nothing more is taken."""

    def __init__(self, offered: Mapping[str, OfferedMechanism]) -> None:
        self._offered = offered
        self._machine: SaslServerMechanism | None = None
        self.state = SaslState.STARTING
        self.mechanism = ""
        """The one that the client has chosen."""
        self.principal: Principal | None = None
        """Set at the first log-in; no later one changes it."""

    @property
    def mechanisms(self) -> list[str]:
        """Those that the listener takes."""
        return list(self._offered)

    @property
    def claimed(self) -> str:
        """Who the client says it is, for the log."""
        return self._machine.claimed if self._machine is not None else ""

    @property
    def is_again(self) -> bool:
        """Whether the client has logged in before."""
        return self.principal is not None

    def handshake(self, mechanism: str) -> None:
        """The client has chosen its mechanism."""
        if self.state not in (SaslState.STARTING, SaslState.AUTHENTICATED):
            raise self.refused_request("SaslHandshake")
        offered = self._offered.get(mechanism)
        if offered is None:
            self.state = SaslState.FAILED
            raise SaslRefusal(
                f"the mechanism '{shown(mechanism)}' is not enabled here, but"
                f" {', '.join(self._offered)}",
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                reason=f"the mechanism '{shown(mechanism)}' is not in sasl.enabled.mechanisms",
            )
        if self.is_again and mechanism != self.mechanism:
            self.state = SaslState.FAILED
            text = f"it logged in by {self.mechanism} and can't change to {mechanism}"
            raise SaslRefusal(text, ErrorCode.UNSUPPORTED_SASL_MECHANISM, reason=text)
        self.mechanism = mechanism
        self._machine = offered.make()
        self.state = SaslState.TOKENS

    def token(self, token: bytes, *, now_ms: int) -> SaslAnswer:
        """`now_ms`: the wall clock."""
        if self.state is not SaslState.TOKENS:
            raise self.refused_request("SaslAuthenticate")
        assert self._machine is not None
        try:
            answer = self._machine.respond(token)
        except LogInRefusedError as refusal:
            raise self._refused(str(refusal)) from None
        authenticated = self._machine.authenticated
        if authenticated is None:
            return SaslAnswer(token=answer)
        principal = Principal(authenticated.name)
        if self.principal not in (None, principal):
            raise self._refused(f"it logged in as {self.principal} before")
        self.principal = principal
        self.state = SaslState.AUTHENTICATED
        return SaslAnswer(token=answer, session_lifetime_ms=self._lifetime(authenticated, now_ms))

    def refused_request(self, what: str) -> SaslRefusal:
        """The refusal of a request that has no place here; the log-in has failed."""
        text = {
            SaslState.STARTING: f"{what} came before the log-in: SaslHandshake comes first",
            SaslState.TOKENS: f"{what} came in the middle of a log-in",
            SaslState.AUTHENTICATED: f"{what} came after the log-in",
            SaslState.FAILED: f"{what} came after a log-in that failed",
        }[self.state]
        self.state = SaslState.FAILED
        return SaslRefusal(text, ErrorCode.ILLEGAL_SASL_STATE, reason=text)

    def _refused(self, reason: str) -> SaslRefusal:
        self.state = SaslState.FAILED
        step = "re-authentication" if self.is_again else "authentication"
        # The same text whatever was wrong: else a stranger could find out who has an account.
        text = f"{step} failed: the credentials are not valid for {self.mechanism}"
        return SaslRefusal(text, ErrorCode.SASL_AUTHENTICATION_FAILED, reason=reason)

    def _lifetime(self, authenticated: Authenticated, now_ms: int) -> int | None:
        bounds = []
        if authenticated.expires_at_ms is not None:
            bounds.append(max(0, authenticated.expires_at_ms - now_ms))
        max_reauth_ms = self._offered[self.mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            bounds.append(max_reauth_ms)
        return min(*bounds, LIFETIME_MAX_MS) if bounds else None
