"""The settings of security: the names of Java's clients and of librdkafka, as one value."""

import pickle

import pytest

from storage_engine.client import Admin, Consumer, ConsumerConnector, Producer
from storage_engine.client.security.client_security import NO_SECURITY
from storage_engine.client.security.security_rows import (
    JAVA_ONLY,
    SECRET_KEYS,
    SECURITY_KEYS,
    SECURITY_SETTINGS,
)
from storage_engine.client.settings import client_security, read_settings_file
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import SecurityProtocol

SCRAM_LINE = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hidden-pw";'
)
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOG_IN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "hidden-pw",
}


def parsed(config):
    return client_security(config, client="client")


def test_nothing_given_is_no_security():
    assert parsed({}) == NO_SECURITY
    assert parsed({"security.protocol": "PLAINTEXT"}) == NO_SECURITY


def test_what_the_protocol_does_not_use_is_left_alone():
    assert parsed({**LOG_IN, "security.protocol": "PLAINTEXT"}) == NO_SECURITY


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


@pytest.mark.parametrize("client", [Admin, Producer, Consumer, ConsumerConnector])
def test_every_client_knows_them_and_shows_no_secret(client):
    place = {"bootstrap.servers": "127.0.0.1:1"}
    if client is ConsumerConnector:
        place = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g"}
    made = client({**place, **LOG_IN})
    assert "hidden-pw" not in repr(made)
    assert "hidden-pw" not in repr(getattr(made, "_config", None))
    made.close()
    with pytest.raises(ConfigError) as raised:
        client({**place, **LOG_IN, "sasl.mechanism": "PLANE"})
    assert "hidden-pw" not in str(raised.value)


@pytest.mark.parametrize("client", [Admin, Producer, Consumer])
@pytest.mark.parametrize(
    "wrong",
    [{"ssl.ca.location": "/no/such/ca.pem"}, {"sasl.password": "a\x07b"}],
    ids=["file", "password"],
)
def test_a_file_or_password_that_cannot_be_used_is_told_where_the_client_is_made(client, wrong):
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **LOG_IN, **wrong}
    if client is not Consumer:
        config.pop("group.id")
    with pytest.raises(ConfigError, match=r"/no/such/ca\.pem can't be read|can't be used with"):
        client(config)


def test_the_value_can_be_compared_and_sent_and_is_not_shown():
    security = parsed({**LOG_IN, "ssl.key.password": "hidden-pw"})
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(parsed({**LOG_IN, "ssl.key.password": "hidden-pw"}))
    assert security != parsed({**LOG_IN, "sasl.password": "another"})
    assert "hidden-pw" not in repr(security)
    assert "hidden-pw" not in f"{security.sasl} {security.tls}"


def test_the_names_are_those_of_the_table():
    assert {setting.name for setting in SECURITY_SETTINGS} == SECURITY_KEYS
    assert SECRET_KEYS <= SECURITY_KEYS
    assert not JAVA_ONLY & SECURITY_KEYS


def test_a_file_of_javas_tools_is_read(tmp_path):
    module, _, rest = SCRAM_LINE.partition(" required ")
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the tools\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={module} required \\\n  {rest}\n"
        "ssl.keymanager.algorithm=PKIX\n"
        "acks=all\n"
    )
    settings = read_settings_file(file)
    assert settings.keys() == {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "acks"}
    settings.pop("acks")
    assert parsed(settings).sasl.password.reveal() == "hidden-pw"


def test_a_file_with_a_misspelt_name_of_security_is_refused(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.trustore.location=/x\n")
    with pytest.raises(ConfigError, match=r"did you mean 'ssl\.truststore\.location'"):
        read_settings_file(file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.properties can't be read"):
        read_settings_file(tmp_path / "missing.properties")
