"""The client's side of a SASL exchange, without IO: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER.

    token = client.respond(None)
    while not client.is_done:
        token = client.respond(<the answer of the server to token>)

`is_done` becomes true only when the server has accepted, and where the mechanism has it, has proven
that it knows the user, too. Source: RFC 4616, RFC 5802, RFC 7677, RFC 7628; KIP-43, KIP-84,
KIP-255, KIP-342.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from storage_engine.core.errors import AuthenticationError, ConfigError
from storage_engine.core.security.scram_credential import load_scramp

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"

SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
PASSWORD_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)

MAX_ITERATIONS = 1_000_000
"""A server asks for at most so many: about a second of work here. Kafka's own limit is 16,384."""

MAX_CHALLENGE_BYTES = 65_536
"""Nonces, salts and errors are a hundred times shorter."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class SaslClient(ABC):
    """The client's side of one log-in; each log-in needs a new one."""

    def __init__(self, mechanism: str, user: str) -> None:
        self.mechanism = mechanism
        self.user = user
        """The name of the user in messages."""
        self.is_done = False

    def respond(self, challenge: bytes | None) -> bytes:
        """Return the next token for the server; `challenge` is None at the beginning. A token that
        is returned once `is_done` must not be sent. AuthenticationError when the challenge is not
        acceptable."""
        if challenge is not None and len(challenge) > MAX_CHALLENGE_BYTES:
            raise AuthenticationError(f"the server's challenge has {len(challenge)} bytes")
        return self._respond(challenge)

    @abstractmethod
    def _respond(self, challenge: bytes | None) -> bytes:
        """Like `respond`, without the check of the size."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mechanism}, user={self.user!r})"


def password_client(mechanism: str, username: str, password: str) -> SaslClient:
    """An exchange by one of PASSWORD_MECHANISMS. ConfigError for what no server can take."""
    if mechanism == PLAIN:
        return _PlainClient(username, password)
    if mechanism in SCRAM_MECHANISMS:
        return _ScramExchange(mechanism, username, password)
    raise ConfigError(
        f"sasl.mechanism {mechanism} does not use a password; those that do are "
        f"{', '.join(PASSWORD_MECHANISMS)}"
    )


class _PlainClient(SaslClient):
    """One message with the password in it, so it is for listeners with TLS."""

    def __init__(self, username: str, password: str) -> None:
        super().__init__(PLAIN, username)
        if not username or not password or "\0" in username + password:
            raise ConfigError(
                "PLAIN needs a user and a password, neither empty nor with a NUL character"
            )
        self._message = f"\0{username}\0{password}".encode()

    def _respond(self, challenge: bytes | None) -> bytes:
        if challenge is None:
            return self._message
        self.is_done = True
        return b""


class _ScramExchange(SaslClient):
    """Neither side learns the password of the other; the server proves that it knows the user."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        super().__init__(mechanism, username)
        scramp = load_scramp()
        self._error = scramp.ScramException
        self._server_first: str | None = None
        try:
            self._scram: Any = scramp.ScramClient([mechanism], username, password)
        except self._error as error:
            raise ConfigError(
                f"the user or the password can't be used with {mechanism}: {error}"
            ) from None

    def _respond(self, challenge: bytes | None) -> bytes:
        try:
            if challenge is None:
                return str(self._scram.get_client_first()).encode()
            text = challenge.decode()
            if self._server_first is None:
                self._server_first = text
                self._scram.set_server_first(text)
                self._check_iterations()
                return str(self._scram.get_client_final()).encode()
            self._scram.set_server_final(text)
        except (self._error, UnicodeDecodeError) as error:
            reason = str(error) if isinstance(error, self._error) else "it is not UTF-8"
            raise AuthenticationError(f"the server's {self.mechanism} message: {reason}") from None
        self.is_done = True
        return b""

    def _check_iterations(self) -> None:
        iterations = int(self._scram.iterations)
        if iterations > MAX_ITERATIONS:
            raise AuthenticationError(
                f"the server asks for {iterations} iterations of {self.mechanism}; "
                f"{MAX_ITERATIONS} is the most that is done"
            )


class OAuthBearerClient(SaslClient):
    """Shows a token. A server that refuses it may say why, and waits for a word before it ends."""

    def __init__(
        self, token: str, *, user: str, extensions: Mapping[str, str] | None = None
    ) -> None:
        """`user`: who shows it, for messages. ConfigError for what can't be sent."""
        super().__init__(OAUTHBEARER, user)
        if not _TOKEN.fullmatch(token):
            raise ConfigError("the token of OAUTHBEARER is empty or no bearer token (RFC 6750)")
        fields = [f"auth=Bearer {token}"]
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
                raise ConfigError(
                    f"the extension '{name}' of OAUTHBEARER must be a name of letters, not 'auth'"
                )
            if not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigError(f"the extension '{name}' of OAUTHBEARER must be printable ASCII")
            fields.append(f"{name}={value}")
        self._message = ("n,,\x01" + "\x01".join(fields) + "\x01\x01").encode()
        self._refusal: str | None = None

    def _respond(self, challenge: bytes | None) -> bytes:
        if challenge is None:
            return self._message
        if self._refusal is not None:
            raise AuthenticationError(f"the server refused the token: {self._refusal}")
        if challenge:
            self._refusal = ascii(challenge.decode(errors="replace"))[1:-1][:200]
            return b"\x01"
        self.is_done = True
        return b""
