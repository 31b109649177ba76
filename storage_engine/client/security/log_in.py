"""Logs a connection in by SASL, and again before its session ends.

    ApiVersions, SaslHandshake(mechanism), SaslAuthenticate(token) as often as the mechanism asks

A broker that bounds sessions says for how long the log-in counts. Before that time is over the
client logs in again on the same connection, between two requests. Source: KIP-43, KIP-152, KIP-368.
"""

import random
from typing import Protocol

from storage_engine.client.security.client_security import ClientSasl
from storage_engine.client.security.oauth_tokens import bearer_token, forget_token
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.printable import printable
from storage_engine.core.security.sasl_client import (
    OAuthBearerClient,
    SaslClient,
    password_client,
)
from storage_engine.core.security.sasl_exchange import TOKENS_IN_REQUESTS
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Req, Resp

_EARLIEST, _LATEST = 0.85, 0.95
"""The part of a session after which the client logs in again: somewhere between, so that the
connections of many clients do not all do it at once."""

_EXPECTS_NONE = "its listener expects no log-in; set security.protocol to PLAINTEXT or SSL"

_MAX_TOLD = 300
"""Characters of a broker's own words that an error repeats."""


class Exchanges(Protocol):
    """A connection to a broker, as far as a log-in needs it."""

    name: str

    def exchange_now(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        deadline: Deadline,
        *,
        version: int | None = None,
    ) -> Resp:
        """Sends a request and returns its answer; answers to earlier requests wait."""
        ...

    def version_for(self, spec: AnyApi) -> int:
        """UnsupportedVersionError when the broker and this client share none."""
        ...


def log_in(connection: Exchanges, sasl: ClientSasl, deadline: Deadline) -> int | None:
    """Returns when to log in again, in monotonic ms; None: never. AuthenticationError, which names
    connection, mechanism and user, and no secret, when the broker refuses."""
    from storage_engine.protocol.messages.sasl_authenticate import API as SASL_AUTHENTICATE
    from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

    token_text = "" if sasl.tokens is None else bearer_token(sasl.tokens, deadline)
    try:
        client = _client(sasl, token_text)
    except ConfigError as error:
        raise _named(connection, sasl, str(error)) from None
    _agree_on_mechanism(connection, sasl, deadline)
    began_ms = monotonic_ms()
    lifetime_ms = 0
    try:
        token = client.respond(None)
        while not client.is_done:
            answer = connection.exchange_now(
                SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), deadline
            )
            if answer.error_code:
                raise _refused(connection, sasl, answer.error_code, answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            token = client.respond(answer.auth_bytes)
    except AuthenticationError as error:
        if sasl.tokens is not None:
            forget_token(sasl.tokens)
        raise _named(connection, sasl, str(error)) from None
    if lifetime_ms <= 0:
        return None
    return began_ms + round(lifetime_ms * random.uniform(_EARLIEST, _LATEST))


def check(sasl: ClientSasl) -> None:
    """ConfigError for a user, a password or an extension that no server can take."""
    _client(sasl, "checked.before.asked")


def _client(sasl: ClientSasl, token: str) -> SaslClient:
    if sasl.tokens is not None:
        extensions = dict(sasl.tokens.extensions)
        return OAuthBearerClient(token, user=sasl.user, extensions=extensions)
    assert sasl.password is not None, "the settings were checked"
    return password_client(sasl.mechanism, sasl.username, sasl.password.reveal())


def _agree_on_mechanism(connection: Exchanges, sasl: ClientSasl, deadline: Deadline) -> None:
    from storage_engine.protocol.messages.sasl_handshake import API as SASL_HANDSHAKE
    from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeRequest

    try:
        version = connection.version_for(SASL_HANDSHAKE)
    except UnsupportedVersionError:
        raise _named(connection, sasl, _EXPECTS_NONE) from None
    if version < TOKENS_IN_REQUESTS:
        raise _named(connection, sasl, "the broker is older than Kafka 1.0, and not served")
    request = SaslHandshakeRequest(mechanism=sasl.mechanism)
    answer = connection.exchange_now(SASL_HANDSHAKE, request, deadline, version=version)
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = ", ".join(answer.mechanisms) or "none"
        reason = f"it does not take that mechanism; it takes {_told(served)}"
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        reason = _EXPECTS_NONE
    else:
        reason = code.meaning
    raise _named(connection, sasl, reason)


def _refused(
    connection: Exchanges, sasl: ClientSasl, error_code: int, message: str | None
) -> KafkaError:
    code = ErrorCode.of(error_code)
    text = _told(message or code.meaning)
    if code.retriable:
        return KafkaError(f"{connection.name}: the log-in failed: {text}", code)
    remedy = "check the token" if sasl.tokens is not None else "check the user and the password"
    return AuthenticationError(f"{text}; {remedy}")


def _named(connection: Exchanges, sasl: ClientSasl, reason: str) -> AuthenticationError:
    return AuthenticationError(
        f"{connection.name}: the log-in as '{sasl.user}' by {sasl.mechanism} failed: {reason}"
    )


def _told(text: str) -> str:
    return printable(" ".join(text[: 4 * _MAX_TOLD].split()))[:_MAX_TOLD]
