"""Tokens of OAUTHBEARER, from an endpoint that is played by a small server of HTTP."""

import base64
import time

import jwt
import pytest

from storage_engine.client.security import oauth_tokens
from storage_engine.client.security.oauth_tokens import bearer_token, forget_token
from storage_engine.client.settings import client_security
from storage_engine.core.errors import AuthenticationError, ErrorCode, KafkaError
from storage_engine.net.deadline import Deadline
from storage_engine.tests.client.security.token_endpoint import Endpoint, running
from storage_engine.tests.net.tls_serving import Authority


@pytest.fixture
def endpoint():
    oauth_tokens._kept.clear()
    with running(Endpoint()) as endpoint:
        yield endpoint


def settings_of(port=0, scheme="http", **more):
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{scheme}://127.0.0.1:{port}/token",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "hidden-pw",
        **more,
    }
    return client_security(config, client="test").sasl.tokens


def soon():
    return Deadline.after(10_000)


def test_a_token_is_asked_for_by_client_credentials_and_kept(endpoint):
    settings = settings_of(endpoint.port, **{"sasl.oauthbearer.scope": "kafka"})
    assert bearer_token(settings, soon()) == "first"
    endpoint.answer = (200, {"access_token": "second"})
    assert bearer_token(settings, soon()) == "first"
    expected = base64.b64encode(b"app:hidden-pw").decode()
    assert endpoint.asked == [(f"Basic {expected}", "grant_type=client_credentials&scope=kafka")]


def test_another_token_is_asked_for_when_most_of_its_time_is_over(endpoint):
    settings = settings_of(endpoint.port)
    now_s = int(time.time())
    short = jwt.encode({"exp": now_s}, "k" * 32)
    endpoint.answer = (200, {"access_token": short, "expires_in": 3600})
    assert bearer_token(settings, soon()) == short
    endpoint.answer = (200, {"access_token": "second", "expires_in": 3600})
    assert bearer_token(settings, soon()) == "second"


def test_a_token_that_a_broker_has_refused_is_not_shown_again(endpoint):
    settings = settings_of(endpoint.port)
    bearer_token(settings, soon())
    endpoint.answer = (200, {"access_token": "second"})
    forget_token(settings)
    assert bearer_token(settings, soon()) == "second"


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_final_and_shows_no_secret(endpoint, status):
    endpoint.answer = (status, {"error": "invalid_client", "error_description": "hidden-pw"})
    with pytest.raises(AuthenticationError, match=f"HTTP {status}") as raised:
        bearer_token(settings_of(endpoint.port), soon())
    assert "hidden-pw" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}),
        (429, {}),
        (302, {}),
        (200, b"no json"),
        (200, {"token": "x"}),
        (200, {"access_token": 5}),
        (200, [1]),
        (200, b"[" * 100_000),
    ],
)
def test_an_endpoint_in_trouble_is_asked_again_later(endpoint, answer):
    endpoint.answer = answer
    with pytest.raises(KafkaError, match="gives no token") as raised:
        bearer_token(settings_of(endpoint.port), soon())
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
    # A redirect is not followed: the secret would go to whoever is named.
    assert len(endpoint.asked) == 1


def test_an_endpoint_that_is_not_there_is_a_lost_connection():
    with pytest.raises(KafkaError, match="gives no token: Connection refused") as raised:
        bearer_token(settings_of(1), soon())
    assert raised.value.retriable


def test_an_endpoint_over_https_is_trusted_by_its_authority(tmp_path):
    authority = Authority(tmp_path)
    context = authority.server_context(authority.issued("127.0.0.1"))
    with running(Endpoint(context)) as endpoint:
        trusting = settings_of(endpoint.port, "https", **{"https.ca.location": authority.ca_file})
        assert bearer_token(trusting, soon()) == "first"
        with pytest.raises(KafkaError):
            bearer_token(settings_of(endpoint.port, "https"), soon())


def test_a_token_in_a_file_is_read_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    settings = settings_of(
        **{"sasl.oauthbearer.token.endpoint.url": file.as_uri()},
    )
    assert bearer_token(settings, soon()) == "one"
    file.write_text("two")
    assert bearer_token(settings, soon()) == "two"
    file.unlink()
    with pytest.raises(AuthenticationError, match="can't be read"):
        bearer_token(settings, soon())


def test_a_token_without_signature_has_the_claims_and_an_end():
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "principal=alice scope=a,b lifeSeconds=60",
    }
    token = bearer_token(client_security(config, client="test").sasl.tokens, soon())
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["sub"], claims["scope"]) == ("alice", ["a", "b"])
    assert claims["exp"] - claims["iat"] == 60


def test_tokens_are_not_shown(endpoint):
    bearer_token(settings_of(endpoint.port), soon())
    assert "first" not in repr(oauth_tokens._kept)
    assert "hidden-pw" not in repr(oauth_tokens._kept)
