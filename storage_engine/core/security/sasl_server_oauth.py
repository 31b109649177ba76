"""OAUTHBEARER, the broker's side: the client brings a token of an identity provider.

    client     n,[a=authorization id],^Aauth=Bearer <token>^A[key=value^A...]^A
    server     nothing, or a JSON object that says why the token is not taken
    client     ^A after such an object; then the log-in fails

What a token says is judged by `check`. Source: RFC 7628, KIP-255, KIP-768.
"""

import json
from collections.abc import Callable

from storage_engine.core.security.sasl_server import Authenticated, LogInRefusedError, shown

CheckToken = Callable[[str], Authenticated]
"""Who the token says the client is; LogInRefusedError when it is not to be believed."""

_SEPARATOR = "\x01"
_REFUSED = json.dumps({"status": "invalid_token"}).encode()
"""The reason is for the broker's log only."""


class OAuthBearerServer:
    """One log-in."""

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
    """The authorization id, empty where there is none, and the bearer token."""
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
