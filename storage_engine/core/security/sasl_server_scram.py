"""SCRAM-SHA-256 and -512, the broker's side, by the library scramp.

    client-first    n,,n=user,r=nonce                 -> r=nonce+ours,s=salt,i=iterations
    client-final    c=biws,r=nonce+ours,p=proof       -> v=signature

A user that does not exist is asked for a proof like any other, with a salt that stays the same (a
decoy), and refused where a wrong password is refused. Source: RFC 5802, RFC 7677, KIP-84;
librdkafka, #4895.
"""

import hmac
from collections.abc import Callable
from typing import NamedTuple

from storage_engine.core.security.sasl_server import Authenticated, LogInRefusedError, shown
from storage_engine.core.security.scram_credential import (
    ITERATIONS_MIN,
    USER_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
)
from storage_engine.core.security.scram_library import load_scramp

TOKEN_BYTES_MAX = 2048
"""Some 200 bytes are usual. Each character of the user's name is looked up in tables, which would
keep the loop for seconds if the name were as long as a frame may be."""


class FoundCredential(NamedTuple):
    """A credential to run a log-in with, and whether the user exists at all."""

    credential: ScramCredential
    is_known: bool


CredentialOf = Callable[[str], FoundCredential]
"""The credential of a user, or a decoy; takes as long for either."""


class ScramServer:
    """One log-in."""

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
        """librdkafka before 2.6.1 puts its own nonce before that of both, which begins with it
        already. As Kafka 3.9 does, we take that: ours is in it, and the proof is made of it."""
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
        """`iterations` and `salt_bytes` are those of most users."""

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
