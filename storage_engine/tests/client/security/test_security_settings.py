"""The settings of security: the names of Java's clients and of librdkafka, as one value."""

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.tests.client.security.log_ins import LOG_IN, SCRAM_LINE, parsed


@pytest.mark.parametrize("value", ["", "none", "NONE"])
def test_the_check_of_the_host_name_can_be_left_out(value):
    config = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": value}
    assert not parsed(config).tls.checks_host_name


def test_tls_of_java_and_of_librdkafka():
    tls = parsed(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/t.p12",
            "ssl.truststore.type": "pkcs12",
            "ssl.truststore.password": "a",
            "ssl.keystore.location": "/k.jks",
            "ssl.keystore.type": "JKS",
            "ssl.keystore.password": "b",
            "ssl.key.password": "c",
            "ssl.protocol": "TLSv1.2",
        }
    ).tls
    assert (tls.truststore_location, tls.truststore_type) == ("/t.p12", "PKCS12")
    assert (tls.keystore_location, tls.keystore_type) == ("/k.jks", None)
    assert tls.protocols == ("TLSv1.2",)
    other = parsed(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/c.pem",
            "ssl.key.location": "/c.key",
            "enable.ssl.certificate.verification": False,
            "ssl.enabled.protocols": ["TLSv1.3"],
        }
    ).tls
    assert other.ca_location == "/ca.pem"
    assert not other.verifies
    assert other.protocols == ("TLSv1.3",)


@pytest.mark.parametrize(
    "config,message",
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; it must be one of PLAINTEXT"),
        ({"sasl.username": "alice"}, "sasl.username is given, but security.protocol is not"),
        ({"ssl.ca.location": "/ca"}, "ssl.ca.location is given, but security.protocol is not"),
        ({**LOG_IN, "sasl.mechanism": "GSSAPI"}, r"GSSAPI \(Kerberos\) is not supported"),
        ({**LOG_IN, "sasl.mechanism": "SCRAM"}, "must be one of PLAIN, SCRAM-SHA-256"),
        ({**LOG_IN, "sasl.mechanisms": "PLAIN"}, "sasl.mechanism and sasl.mechanisms differ"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "PLAIN needs a user and a password; give sasl.username and sasl.password",
        ),
        ({**LOG_IN, "sasl.jaas.config": SCRAM_LINE}, "both given; leave one of them out"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": SCRAM_LINE,
            },
            "the login module in sasl.jaas.config is ScramLoginModule",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'a.Krb5 required x="y";'},
            "has a login module that is not known",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/a", "ssl.truststore.location": "/b"},
            "ssl.truststore.location and ssl.ca.location are both given",
        ),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/a"},
            "ssl.certificate.location needs ssl.key.location",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "k"}, "go together; give both"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS"}, "must be PEM or PKCS12"),
        ({"security.protocol": "SSL", "ssl.protocol": "TLSv1"}, "must be TLSv1.3 or TLSv1.2"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "are not safe"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "needs sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "ftp://x",
            },
            "must begin with https:, http: or file:",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://x",
            },
            "needs a client id and its secret",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.config": "principal=alice lifeSeconds=0",
            },
            "lifeSeconds in sasl.oauthbearer.config, is '0'; it must be a whole number",
        ),
        ({"sasl.pasword": "hidden-pw"}, "did you mean 'sasl.password'"),
        ({**LOG_IN, "sasl.password": 12345}, r"sasl.password is \[hidden\]; it must be a text"),
        ({**LOG_IN, "sasl.password": ""}, r"sasl.password is \[hidden\]"),
    ],
)
def test_a_mistake_is_one_line_without_the_secret(config, message):
    with pytest.raises(ConfigError, match=message) as raised:
        parsed(config)
    text = str(raised.value)
    assert "\n" not in text
    assert "hidden-pw" not in text
    assert "12345" not in text
