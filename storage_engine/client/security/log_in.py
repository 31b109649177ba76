"""Logs a connection in by SASL, and again before its session ends.

A broker that bounds sessions says for how long the log-in counts. Before that time is over the
client logs in again on the same connection, between two requests. Source: KIP-368.
"""

import random
from collections.abc import Callable

from storage_engine.client.security.client_security import ClientSasl
from storage_engine.client.security.oauth_tokens import bearer_token, forget_token
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.core.security.sasl_client import (
    OAuthBearerClient,
    SaslClient,
    password_client,
)
from storage_engine.core.security.sasl_server import TOKENS_IN_REQUESTS
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.net.sasl_log_in import (
    EXPECTS_NONE,
    Answer,
    LogInRequest,
    failed_log_in,
    log_in_steps,
)
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.messages.sasl_handshake import API as SASL_HANDSHAKE

_EARLIEST, _LATEST = 0.85, 0.95
"""The part of a session after which the client logs in again: somewhere between, so that the
connections of many clients do not all do it at once."""


def log_in(
    name: str,
    sasl: ClientSasl,
    deadline: Deadline,
    *,
    version_for: Callable[[AnyApi], int],
    exchange: Callable[[AnyApi, LogInRequest], Answer],
) -> int | None:
    """Returns when to log in again, in monotonic ms; None: never. AuthenticationError, which names
    the connection, mechanism and user, and no secret, when the broker refuses."""
    token = "" if sasl.tokens is None else bearer_token(sasl.tokens, deadline)
    began_ms = monotonic_ms()
    try:
        client = _client(sasl, token)
        _check_version(version_for)
        lifetime_ms = _exchanged(name, client, exchange)
    except (AuthenticationError, ConfigError) as error:
        if sasl.tokens is not None:
            forget_token(sasl.tokens)
        reason = failed_log_in(sasl.user, sasl.mechanism, str(error))
        raise AuthenticationError(f"{name}: {reason}") from None
    if lifetime_ms <= 0:
        return None
    return began_ms + round(lifetime_ms * random.uniform(_EARLIEST, _LATEST))


def _check_version(version_for: Callable[[AnyApi], int]) -> None:
    try:
        version = version_for(SASL_HANDSHAKE)
    except UnsupportedVersionError:
        raise AuthenticationError(EXPECTS_NONE) from None
    if version < TOKENS_IN_REQUESTS:
        raise AuthenticationError(
            "the broker is older than Kafka 1.0, which this client does not support"
        )


def _exchanged(
    name: str, client: SaslClient, exchange: Callable[[AnyApi, LogInRequest], Answer]
) -> int:
    """Log in, and return how long the log-in is valid in ms; 0: for ever."""
    steps = log_in_steps(client)
    api, request = next(steps)
    while True:
        answer = exchange(api, request)
        try:
            api, request = steps.send(answer)
        except StopIteration as end:
            return int(end.value)
        except AuthenticationError:
            raise
        except KafkaError as error:
            raise KafkaError(f"{name}: the log-in failed: {error}", error.code) from None


def check(sasl: ClientSasl) -> None:
    """ConfigError for a user, a password or an extension that no server can take."""
    _client(sasl, "checked.before.asked")


def _client(sasl: ClientSasl, token: str) -> SaslClient:
    if sasl.tokens is not None:
        extensions = dict(sasl.tokens.extensions)
        return OAuthBearerClient(token, user=sasl.user, extensions=extensions)
    assert sasl.password is not None, "the settings were checked"
    return password_client(sasl.mechanism, sasl.username, sasl.password.reveal())
