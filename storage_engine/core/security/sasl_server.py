r"""The broker's side of a SASL log-in: a state machine per mechanism, fed with client tokens.

    respond(token) -> answer ... until `authenticated` says who the client is
                   \-> LogInRefusedError

A refusal has the reason for the broker's log; the client is never told it, since it could be that
there is no such user.

OAUTHBEARER, the broker's side: the client brings a token of an identity provider.

    client     n,[a=authorization id],^Aauth=Bearer <token>^A[key=value^A...]^A
    server     nothing, or a JSON object that says why the token is not taken
    client     ^A after such an object; then the log-in fails

`check` validates the token and returns the identity in it.

SCRAM-SHA-256 and -512, the broker's side, by the library scramp.

    client-first    n,,n=user,r=nonce                 -> r=nonce+ours,s=salt,i=iterations
    client-final    c=biws,r=nonce+ours,p=proof       -> v=signature

A user that does not exist is asked for a proof like any other, with a salt that stays the same (a
decoy), and refused where a wrong password is refused.

The log-in on one connection, from the first request to the last re-authentication.

    state           event                                   becomes
    STARTING        handshake, mechanism known              TOKENS
    TOKENS          token, the mechanism wants another      TOKENS
    TOKENS          token, the client has shown who it is   AUTHENTICATED
    AUTHENTICATED   handshake, same mechanism               TOKENS, for the same principal
    any             anything else                           FAILED

Source: RFC 4422, RFC 4616 (PLAIN), KIP-43, RFC 7628, KIP-255, KIP-768, RFC 5802, RFC 7677, KIP-84,
KIP-152, KIP-368; librdkafka's issue 4895.
"""

import enum
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.printable import printable
from storage_engine.core.security.principal import Principal
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MIN,
    USER_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
    load_scramp,
)

_SHOWN_CHARACTERS = 64
"""The most characters that are shown of a name that a stranger claims."""


class LogInRefusedError(HeadraceError):
    """A client did not prove its identity. The text is for the broker's log, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The proven identity of a client."""

    name: str
    expires_at_ms: int | None = None
    """The wall clock time at which the client's credential expires; None: never."""


class SaslServerMechanism(Protocol):
    @property
    def authenticated(self) -> Authenticated | None:
        """Set once the log-in has succeeded; no token is accepted afterwards."""
        ...

    @property
    def claimed(self) -> str:
        """The name that the client claims, in a form for the log; empty while it is not known."""
        ...

    def respond(self, token: bytes) -> bytes:
        """Return the answer to the client's token. LogInRefusedError ends the log-in."""
        ...


def shown(name: str) -> str:
    """Return a claimed name for the log: one line of bounded length."""
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


CheckToken = Callable[[str], Authenticated]
"""Returns the identity in the token; LogInRefusedError when the token is not valid."""

_SEPARATOR = "\x01"
_REFUSED = json.dumps({"status": "invalid_token"}).encode()
"""The answer to a refused token, without the reason, which is for the broker's log only."""


class OAuthBearerServer:
    def __init__(self, check: CheckToken) -> None:
        self._check = check
        self._refusal: LogInRefusedError | None = None
        self.authenticated: Authenticated | None = None
        self.claimed = ""

    def respond(self, token: bytes) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        if self.authenticated is not None:
            raise LogInRefusedError("it goes on after it has logged in")
        authorization_id, bearer = _parsed(token)
        try:
            authenticated = self._check(bearer)
        except LogInRefusedError as refusal:
            self._refusal = LogInRefusedError(str(refusal))
            return _REFUSED
        self.claimed = shown(authenticated.name)
        if authorization_id not in ("", authenticated.name):
            raise LogInRefusedError("it asks to act for another user")
        self.authenticated = authenticated
        return b""


def _parsed(token: bytes) -> tuple[str, str]:
    """Return the authorization id, empty where there is none, and the bearer token."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise LogInRefusedError("its token is not UTF-8") from None
    header, *pairs = text.split(_SEPARATOR)
    binding, _, rest = header.partition(",")
    authorization, comma, nothing = rest.partition(",")
    is_header = binding in ("n", "y") and comma and not nothing
    if not is_header or pairs[-2:] != ["", ""]:
        raise LogInRefusedError("its token is not of the form of OAUTHBEARER")
    if authorization and not authorization.startswith("a="):
        raise LogInRefusedError("its authorization id is not of the form a=name")
    bearers = [pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth=")]
    if len(bearers) != 1:
        raise LogInRefusedError("its token has no auth field, or several")
    scheme, _, bearer = bearers[0].partition(" ")
    if scheme.lower() != "bearer" or not bearer.strip():
        raise LogInRefusedError("its auth field must be: Bearer <token>")
    name = authorization.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return name, bearer.strip()


TOKEN_BYTES_MAX = 2048
"""Some 200 bytes are usual. Each character of the user's name is looked up in tables, which would
keep the loop for seconds if the name were as long as a frame may be."""


class FoundCredential(NamedTuple):
    """A credential to run a log-in with, and whether the user exists at all."""

    credential: ScramCredential
    is_known: bool


CredentialOf = Callable[[str], FoundCredential]
"""Returns the credential of a user, or a decoy; takes as long for either."""


class ScramServer:
    def __init__(self, mechanism: ScramMechanism, credential_of: CredentialOf, nonce: str) -> None:
        """`nonce`: printable characters without commas that nobody can guess."""
        scramp = load_scramp()
        self._failure = scramp.ScramException
        self._credential_of = credential_of
        self._found: FoundCredential | None = None
        self._user = ""
        self._nonce = nonce
        self._server = scramp.ScramMechanism(mechanism.value).make_server(
            self._auth_info, s_nonce=nonce
        )
        self._is_first = True
        self.authenticated: Authenticated | None = None

    @property
    def claimed(self) -> str:
        return shown(self._user)

    def respond(self, token: bytes) -> bytes:
        if self.authenticated is not None:
            raise LogInRefusedError("it goes on after it has logged in")
        if len(token) > TOKEN_BYTES_MAX:
            raise LogInRefusedError(f"its token has {len(token)} bytes, {TOKEN_BYTES_MAX} are read")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LogInRefusedError("its token is not UTF-8") from None
        try:
            answer = self._first(text) if self._is_first else self._final(text)
        except self._failure as failure:
            # Its text may hold what the client sent, its code does not.
            code = getattr(failure.server_error, "value", "malformed")
            raise LogInRefusedError(f"the exchange failed: {code}") from None
        return answer.encode()

    def _first(self, text: str) -> str:
        self._is_first = False
        self._server.set_client_first(text)
        return str(self._server.get_server_first())

    def _final(self, text: str) -> str:
        self._accept_doubled_nonce(text)
        self._server.set_client_final(text)
        answer = str(self._server.get_server_final())
        assert self._found is not None
        if not self._found.is_known:
            raise LogInRefusedError("there is no such user")
        self.authenticated = Authenticated(name=self._user)
        return answer

    def _accept_doubled_nonce(self, text: str) -> None:
        """Accept the nonce of librdkafka before 2.6.1, which puts its own before the combined one
        that begins with it already. Kafka 3.9 does so, too: the proof covers the whole nonce."""
        of_both = self._server.nonce
        if of_both is None:
            return
        of_client = str(of_both).removesuffix(self._nonce)
        doubled = f"{of_client}{of_both}"
        if f",r={doubled}," in text:
            self._server.nonce = type(of_both)(doubled)

    def _auth_info(self, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        self._user = user
        if len(user.encode()) > USER_BYTES_MAX:
            # Nobody can have that name: no hint is given by refusing it.
            return None
        self._found = self._credential_of(user)
        each = self._found.credential
        return each.salt, each.stored_key, each.server_key, each.iterations


class ScramDecoys:
    """Credentials of users that do not exist: for each name always the same, and of no password.

    A stranger who asks twice, or who asks two brokers, sees what it would see of a user.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: a secret that all brokers of a cluster share."""
        self._key = key

    def credential(
        self,
        mechanism: ScramMechanism,
        user: str,
        *,
        iterations: int = ITERATIONS_MIN,
        salt_bytes: int = 16,
    ) -> ScramCredential:
        """Return a user's decoy. `iterations`, `salt_bytes`: the values of most users."""

        def derived(what: str) -> bytes:
            name = f"{mechanism.value}\0{what}\0{user}".encode()
            return hmac.digest(self._key, name, "sha512")

        salt = b"".join(derived(f"salt {part}") for part in range(-(-salt_bytes // 64)))
        return ScramCredential(
            salt=salt[:salt_bytes],
            stored_key=derived("stored key")[: mechanism.key_bytes],
            server_key=derived("server key")[: mechanism.key_bytes],
            iterations=iterations,
        )


TOKENS_IN_REQUESTS = 1
"""From this version of SaslHandshake on tokens come in SaslAuthenticate requests."""

LIFETIME_MAX_MS = 2**31 - 1
"""24 days: a token may be valid for longer than a field or a timer can hold."""


class SaslState(enum.Enum):
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
    make: Callable[[], SaslServerMechanism]
    """Creates the state machine of one log-in."""
    max_reauth_ms: int = 0
    """After this time a client has to log in again; 0: never (`connections.max.reauth.ms`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAnswer:
    token: bytes = field(repr=False)
    session_lifetime_ms: int | None = None
    """The rest of the log-in's lifetime, set with the last token; None: no limit."""


class SaslExchange:
    """The log-in of one connection. After a SaslRefusal, which its methods raise, no request is
    accepted any more."""

    def __init__(self, offered: Mapping[str, OfferedMechanism]) -> None:
        self._offered = offered
        self._machine: SaslServerMechanism | None = None
        self.state = SaslState.STARTING
        self.mechanism = ""
        """The mechanism that the client has chosen; empty before its handshake."""
        self.principal: Principal | None = None
        """Set at the first log-in; no later one changes it."""

    @property
    def mechanisms(self) -> list[str]:
        return list(self._offered)

    @property
    def claimed(self) -> str:
        """The name that the client claims, for the log; empty while it is not known."""
        return self._machine.claimed if self._machine is not None else ""

    @property
    def is_again(self) -> bool:
        """Whether the client has logged in before."""
        return self.principal is not None

    def handshake(self, mechanism: str) -> None:
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
        """Process a token of the client. `now_ms` is the wall clock time."""
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
        """Fail the log-in; return the refusal of a request that does not fit the state."""
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
