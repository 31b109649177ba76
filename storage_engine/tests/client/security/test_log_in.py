"""A client's log-in: when it is done again, and what its errors name."""

import pytest

from storage_engine.client.security.log_in import check, log_in
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.messages import sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeResponse
from storage_engine.tests.client.security.log_ins import LOG_IN, parsed

SASL = parsed({**LOG_IN, "sasl.mechanism": "PLAIN"}).sasl
SESSION_MS = 1_000_000


def logged_in(answer=None, *, version_for=lambda _: 1):
    def exchange(api, _request):
        if api is sasl_handshake.API:
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        return answer or SaslAuthenticateResponse()

    deadline = Deadline.after(10_000)
    return log_in("b:9092", SASL, deadline, version_for=version_for, exchange=exchange)


def refused(code):
    return SaslAuthenticateResponse(error_code=int(code), error_message="no")


def test_it_is_done_again_near_the_end_of_the_session_and_not_by_all_at_once():
    before = monotonic_ms()
    times = [logged_in(SaslAuthenticateResponse(session_lifetime_ms=SESSION_MS)) for _ in range(20)]
    after = monotonic_ms()
    assert before + 0.85 * SESSION_MS <= min(times) <= max(times) <= after + 0.95 * SESSION_MS
    assert len(set(times)) > 10
    assert logged_in() is None, "a session without an end"


def test_a_refusal_names_the_connection_the_user_and_the_mechanism_and_no_secret():
    with pytest.raises(AuthenticationError) as raised:
        logged_in(refused(ErrorCode.SASL_AUTHENTICATION_FAILED))
    assert str(raised.value).startswith("b:9092: the log-in as 'alice' by PLAIN failed: no; ")
    assert "hidden-pw" not in str(raised.value)


def test_a_broker_that_is_not_ready_is_no_refusal():
    with pytest.raises(KafkaError, match=r"^b:9092: the log-in failed: no") as raised:
        logged_in(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert not isinstance(raised.value, AuthenticationError)


def test_a_broker_that_serves_no_log_in_or_an_old_one_is_told():
    def none(_api):
        raise UnsupportedVersionError("serves SaslHandshake not at all")

    with pytest.raises(AuthenticationError, match="its listener expects no log-in"):
        logged_in(version_for=none)
    with pytest.raises(AuthenticationError, match=r"older than Kafka 1\.0"):
        logged_in(version_for=lambda _: 0)


def test_a_password_that_no_server_can_take_is_told_before_a_connection():
    with pytest.raises(ConfigError, match="PLAIN needs a user and a password"):
        check(parsed({**LOG_IN, "sasl.mechanism": "PLAIN", "sasl.password": "a\0b"}).sasl)
