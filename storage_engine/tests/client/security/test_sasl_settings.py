"""The log-in of a client, as Java's clients write it and as librdkafka's do."""

import pytest

from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.tests.client.security.log_ins import LOG_IN, OAUTH, SCRAM_LINE, parsed


@pytest.mark.parametrize(
    "config",
    [
        LOG_IN,
        {**LOG_IN, "security.protocol": "sasl_ssl"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "scram-sha-512",
            "sasl.jaas.config": SCRAM_LINE,
        },
    ],
)
def test_java_and_librdkafka_write_the_same_log_in(config):
    security = parsed(config)
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.tls is not None
    assert security.tls.verifies
    assert security.tls.checks_host_name
    assert security.sasl.mechanism == "SCRAM-SHA-512"
    assert security.sasl.user == "alice"
    assert security.sasl.password.reveal() == "hidden-pw"


def test_a_module_that_has_one_mechanism_names_it():
    line = SCRAM_LINE.replace("scram.Scram", "plain.Plain")
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": line}
    assert parsed(config).sasl.mechanism == "PLAIN"


@pytest.mark.parametrize(
    "config,claims",
    [
        (
            {"sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="alice";'},
            {"sub": "alice"},
        ),
        (
            {
                "sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="a" '
                'unsecuredLoginNumberClaim_n="1.5" unsecuredLoginListClaim_scope="|x|y";'
            },
            {"sub": "a", "n": 1.5, "scope": ("x", "y")},
        ),
        (
            {"sasl.oauthbearer.config": "principal=bob scope=r,w lifeSeconds=60"},
            {"sub": "bob", "scope": ("r", "w")},
        ),
    ],
)
def test_tokens_without_signature(config, claims):
    config = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **config}
    assert dict(parsed(config).sasl.tokens.unsecured_claims) == claims


@pytest.mark.parametrize(
    "config",
    [
        {"sasl.jaas.config": f'{OAUTH} clientId="app" clientSecret="hidden-pw" scope="kafka";'},
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": "hidden-pw",
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "hidden-pw",
            "sasl.oauthbearer.scope": "kafka",
        },
    ],
)
def test_client_credentials_of_all_three_spellings(config):
    sasl = parsed(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
            **config,
        }
    ).sasl
    assert (sasl.tokens.client_id, sasl.tokens.scope) == ("app", "kafka")
    assert sasl.tokens.client_secret.reveal() == "hidden-pw"
    assert sasl.user == "app"
