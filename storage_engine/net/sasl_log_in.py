"""The requests of a SASL log-in, and the meaning of the answers; the caller sends the requests.

    SaslHandshake(mechanism), SaslAuthenticate(token) as often as the mechanism asks

Source: KIP-43, KIP-152, KIP-368.
"""

from collections.abc import Generator

from storage_engine.core.errors import AuthenticationError, ErrorCode, KafkaError
from storage_engine.core.printable import printable
from storage_engine.core.security.sasl_client import OAuthBearerClient, SaslClient
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.messages.sasl_authenticate import API as SASL_AUTHENTICATE
from storage_engine.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from storage_engine.protocol.messages.sasl_handshake import API as SASL_HANDSHAKE
from storage_engine.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

EXPECTS_NONE = "its listener expects no log-in; set the security protocol to PLAINTEXT or SSL"

_MAX_TOLD = 300
"""The most characters of a broker's error message that an error repeats."""

LogInRequest = SaslHandshakeRequest | SaslAuthenticateRequest
Asked = tuple[AnyApi, LogInRequest]
Answer = SaslHandshakeResponse | SaslAuthenticateResponse
LogInSteps = Generator[Asked, Answer, int]


def log_in_steps(client: SaslClient) -> LogInSteps:
    """Yields requests, is sent their answers, and returns how long the log-in is valid, in ms; 0:
    for ever. Raises AuthenticationError, or a KafkaError that is retriable; neither contains a
    secret. A step may take milliseconds: mechanisms require thousands of hashes."""
    answer = yield SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=client.mechanism)
    assert isinstance(answer, SaslHandshakeResponse)
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = _told(", ".join(answer.mechanisms) or "none")
        raise AuthenticationError(f"it does not take that mechanism; it takes {served}")
    if code is not ErrorCode.NONE:
        is_open = code is ErrorCode.ILLEGAL_SASL_STATE
        raise AuthenticationError(EXPECTS_NONE if is_open else code.meaning)
    lifetime_ms = 0
    token = client.respond(None)
    while not client.is_done:
        answer = yield SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token)
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code:
            raise _refused(client, ErrorCode.of(answer.error_code), answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        token = client.respond(answer.auth_bytes)
    return lifetime_ms


def _refused(client: SaslClient, code: ErrorCode, message: str | None) -> KafkaError:
    text = _told(message or code.meaning)
    if code.retriable:
        return KafkaError(text, code)
    remedy = "token" if isinstance(client, OAuthBearerClient) else "user and the password"
    return AuthenticationError(f"{text}; check the {remedy}")


def failed_log_in(user: str, mechanism: str, reason: str) -> str:
    return f"the log-in as '{user}' by {mechanism} failed: {reason}"


def _told(text: str) -> str:
    """A broker's error message in printable characters, at most _MAX_TOLD of them."""
    return printable(" ".join(text[: 4 * _MAX_TOLD].split()))[:_MAX_TOLD]
