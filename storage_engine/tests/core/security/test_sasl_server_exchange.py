"""The log-in on one connection: its states, its times, and what a client is told."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.principal import Principal
from storage_engine.core.security.sasl_server import (
    LIFETIME_MAX_MS,
    Authenticated,
    LogInRefusedError,
    OfferedMechanism,
    SaslExchange,
    SaslRefusal,
    SaslState,
)

NOW = 1_000_000


class SaysWho:
    """A mechanism whose token is the name, after one that is empty."""

    def __init__(self, expires_at_ms: int | None = None) -> None:
        self.authenticated: Authenticated | None = None
        self.claimed = ""
        self._expires_at_ms = expires_at_ms

    def respond(self, token: bytes) -> bytes:
        if token == b"":
            return b"who"
        if token == b"bad":
            raise LogInRefusedError("a secret reason")
        name = token.decode()
        self.authenticated = Authenticated(name=name, expires_at_ms=self._expires_at_ms)
        return b"welcome"


def exchange(max_reauth_ms: int = 0, expires_at_ms: int | None = None) -> SaslExchange:
    def make() -> SaysWho:
        return SaysWho(expires_at_ms)

    return SaslExchange(
        {
            "ONE": OfferedMechanism(make=make, max_reauth_ms=max_reauth_ms),
            "TWO": OfferedMechanism(make=make),
        }
    )


def logged_in(as_whom: bytes = b"alice", **times: int) -> SaslExchange:
    made = exchange(**times)
    made.handshake("ONE")
    made.token(as_whom, now_ms=NOW)
    return made


def refusal(work) -> SaslRefusal:
    with pytest.raises(SaslRefusal) as caught:
        work()
    return caught.value


def test_tokens_follow_the_handshake_until_the_client_has_shown_who_it_is() -> None:
    made = exchange()
    made.handshake("ONE")
    assert made.state is SaslState.TOKENS
    answer = made.token(b"", now_ms=NOW)
    assert (answer.token, answer.session_lifetime_ms, made.principal) == (b"who", None, None)
    answer = made.token(b"alice", now_ms=NOW)
    assert (answer.token, made.state) == (b"welcome", SaslState.AUTHENTICATED)
    assert made.principal == Principal("alice")


def test_a_mechanism_that_is_not_enabled_is_told_with_those_that_are() -> None:
    failure = refusal(lambda: exchange().handshake("GSSAPI"))
    assert failure.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "ONE, TWO" in str(failure)


@pytest.mark.parametrize("state", [SaslState.STARTING, SaslState.AUTHENTICATED, SaslState.FAILED])
def test_a_token_without_a_handshake_before_it_ends_the_log_in(state: SaslState) -> None:
    made = logged_in() if state is SaslState.AUTHENTICATED else exchange()
    if state is SaslState.FAILED:
        refusal(lambda: made.handshake("GSSAPI"))
    failure = refusal(lambda: made.token(b"alice", now_ms=NOW))
    assert failure.code is ErrorCode.ILLEGAL_SASL_STATE
    assert made.state is SaslState.FAILED


def test_a_handshake_in_the_middle_of_a_log_in_ends_it() -> None:
    made = exchange()
    made.handshake("ONE")
    assert refusal(lambda: made.handshake("ONE")).code is ErrorCode.ILLEGAL_SASL_STATE


def test_the_client_is_not_told_what_was_wrong() -> None:
    made = exchange()
    made.handshake("ONE")
    failure = refusal(lambda: made.token(b"bad", now_ms=NOW))
    assert failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "secret" not in str(failure)
    assert failure.reason == "a secret reason"


def test_a_client_logs_in_again_as_itself_and_by_the_same_mechanism() -> None:
    made = logged_in()
    made.handshake("ONE")
    assert made.is_again
    made.token(b"alice", now_ms=NOW)
    assert made.state is SaslState.AUTHENTICATED
    made.handshake("ONE")
    failure = refusal(lambda: made.token(b"bob", now_ms=NOW))
    assert failure.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert made.principal == Principal("alice")
    failure = refusal(lambda: logged_in().handshake("TWO"))
    assert "can't change to TWO" in str(failure)


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_at_ms", "expected"),
    [
        (0, None, None),
        (500, None, 500),
        (0, NOW + 300, 300),
        (500, NOW + 300, 300),
        (200, NOW + 300, 200),
        (0, NOW - 1, 0),
        (0, NOW + 10**15, LIFETIME_MAX_MS),
    ],
)
def test_a_log_in_lasts_as_long_as_setting_and_token_allow(
    max_reauth_ms, expires_at_ms, expected
) -> None:
    made = exchange(max_reauth_ms=max_reauth_ms, expires_at_ms=expires_at_ms)
    made.handshake("ONE")
    assert made.token(b"alice", now_ms=NOW).session_lifetime_ms == expected
