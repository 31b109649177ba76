"""The steps of a log-in: what a broker may answer, and what an error tells of it."""

import pytest

from storage_engine.core.errors import AuthenticationError, ErrorCode, KafkaError
from storage_engine.core.security.sasl_client import OAuthBearerClient, password_client
from storage_engine.net.sasl_log_in import EXPECTS_NONE, log_in_steps
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeResponse

TAKEN = SaslHandshakeResponse(mechanisms=["PLAIN"])


def plain():
    return password_client("PLAIN", "alice", "hidden-pw")


def outcome(*answers, client=None):
    """What the log-in ends with, after these answers."""
    steps = log_in_steps(client or plain())
    next(steps)
    for answer in answers:
        try:
            steps.send(answer)
        except StopIteration as end:
            return end.value
    raise AssertionError("the log-in goes on")


def refused(code, message=None):
    return SaslAuthenticateResponse(error_code=int(code), error_message=message)


@pytest.mark.parametrize("lifetime_ms", [0, 60_000])
def test_a_log_in_counts_for_as_long_as_the_broker_says(lifetime_ms):
    assert outcome(TAKEN, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)) == lifetime_ms


@pytest.mark.parametrize(
    ("code", "mechanisms", "text"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["A", "B\n"], "does not take .*; it takes A, B$"),
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [], "it takes none$"),
        (ErrorCode.ILLEGAL_SASL_STATE, [], EXPECTS_NONE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, [], ErrorCode.UNKNOWN_SERVER_ERROR.meaning),
    ],
)
def test_a_mechanism_that_is_refused_says_why(code, mechanisms, text):
    with pytest.raises(AuthenticationError, match=text):
        outcome(SaslHandshakeResponse(error_code=int(code), mechanisms=mechanisms))


def test_a_refusal_is_one_short_printable_line_with_the_remedy():
    failed = ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(AuthenticationError) as raised:
        outcome(TAKEN, refused(failed, "no\n such\x1b user " + "x" * 5_000))
    text = str(raised.value)
    assert text.startswith("no such") and text.endswith("x; check the user and the password")
    assert text.isprintable() and len(text) < 400
    assert "hidden-pw" not in text
    with pytest.raises(AuthenticationError, match=r"check the token$"):
        outcome(TAKEN, refused(failed), client=OAuthBearerClient("a.b.c", user="app"))


def test_a_broker_that_can_not_say_yet_is_asked_again():
    with pytest.raises(KafkaError) as raised:
        outcome(TAKEN, refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert raised.value.retriable and not isinstance(raised.value, AuthenticationError)
