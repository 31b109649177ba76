"""The settings of security that every client has: the names of Java's clients and of librdkafka.

A name that both have means the same; of two names for one thing only one may be given. Source:
Kafka's and librdkafka's lists of settings; KIP-651 (PEM), KIP-768 (OAuth).
"""

from collections.abc import Mapping
from typing import Any

from storage_engine.core.security.sasl_client import MECHANISMS
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.setting import INT_MAX, Setting, SettingType

Given = Mapping[str, Any]
"""Settings by key, as users give them, or after they were checked: then a value has the type of its
setting, and a secret is a `Secret`."""

PROTOCOL = "security.protocol"

LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
"""The classes of `sasl.login.callback.handler.class` that are done here, without their package."""


def _text(name: str, doc: str, *, may_be_empty: bool = False, form: str = "") -> Setting:
    return Setting(
        name=name, type=SettingType.STRING, doc=doc, may_be_empty=may_be_empty, form=form
    )


def _list(name: str, doc: str) -> Setting:
    return Setting(name=name, type=SettingType.LIST, doc=doc)


def _milliseconds(name: str, doc: str) -> Setting:
    return Setting(name=name, type=SettingType.INT, minimum=1, maximum=INT_MAX, unit="ms", doc=doc)


_TLS = (
    _text("ssl.truststore.location", "The file with the authorities whose brokers are trusted."),
    _text("ssl.truststore.type", "PEM or PKCS12; not set: as the file looks."),
    _text("ssl.truststore.password", "The password of that file."),
    _text("ssl.truststore.certificates", "The authorities as PEM text, instead of a file."),
    _text("ssl.ca.location", "The same as a PEM file, or a directory by OpenSSL's names."),
    _text("ssl.ca.pem", "The same as PEM text."),
    _text("ssl.keystore.location", "The file with the client's certificate and key."),
    _text("ssl.keystore.type", "PEM or PKCS12; not set: as the file looks."),
    _text("ssl.keystore.password", "The password of that file."),
    _text("ssl.keystore.certificate.chain", "The client's certificate as PEM text."),
    _text("ssl.keystore.key", "The key of that certificate as PEM text."),
    _text("ssl.certificate.location", "The PEM file with the client's certificate."),
    _text("ssl.certificate.pem", "The client's certificate as PEM text."),
    _text("ssl.key.location", "The PEM file with the key of that certificate."),
    _text("ssl.key.pem", "The key of that certificate as PEM text."),
    _text("ssl.key.password", "The password of the key."),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https: the certificate must be for the host that is connected to; empty or none: for any.",
        may_be_empty=True,
        form="https, none or empty",
    ),
    Setting(
        name="enable.ssl.certificate.verification",
        type=SettingType.BOOLEAN,
        doc="false: any certificate is accepted, for tests alone.",
    ),
    _text("ssl.protocol", "The newest version of TLS: TLSv1.3 or TLSv1.2."),
    _list("ssl.enabled.protocols", "The versions of TLS: TLSv1.2, TLSv1.3."),
    _list("ssl.cipher.suites", "The cipher suites, by Java's or OpenSSL's names."),
)

_SASL = (
    _text("sasl.mechanism", f"The mechanism of the log-in: {', '.join(MECHANISMS)}."),
    _text("sasl.mechanisms", "Another name of sasl.mechanism."),
    _text("sasl.jaas.config", "The log-in as Java's clients write it: a module and its options."),
    _text("sasl.username", "The user of PLAIN and SCRAM."),
    _text("sasl.password", "The password of that user."),
    _text("sasl.login.callback.handler.class", f"One of {', '.join(LOGIN_HANDLERS)}."),
    _milliseconds("sasl.login.connect.timeout.ms", "The token endpoint is waited for so long."),
    _milliseconds(
        "sasl.login.read.timeout.ms", "The same, for its answer; the longer of the two counts."
    ),
    Setting(
        name="sasl.login.refresh.window.factor",
        type=SettingType.DOUBLE,
        minimum=0.5,
        maximum=1.0,
        doc="The part of a token's lifetime after which another is asked for (0.8).",
    ),
    Setting(
        name="sasl.oauthbearer.method",
        type=SettingType.STRING,
        choices=("default", "oidc"),
        doc="oidc: the token comes from the endpoint; default: from sasl.oauthbearer.config.",
    ),
    _text("sasl.oauthbearer.token.endpoint.url", "http, https: asks for the token; file: has it."),
    _text("sasl.oauthbearer.client.id", "The client that asks for the token."),
    _text("sasl.oauthbearer.client.secret", "The secret of that client."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Another name of the client's."),
    _text("sasl.oauthbearer.client.credentials.client.secret", "Another name of its secret's."),
    _text("sasl.oauthbearer.scope", "The scope that is asked for."),
    _text("sasl.oauthbearer.extensions", "Extensions of the log-in: name=value, with commas."),
    _text(
        "sasl.oauthbearer.config",
        "A token without signature, for tests: principal=alice scope=read lifeSeconds=3600.",
    ),
    Setting(
        name="enable.sasl.oauthbearer.unsecure.jwt",
        type=SettingType.BOOLEAN,
        doc="Whether sasl.oauthbearer.config may make such a token.",
    ),
    _text("https.ca.location", "The PEM file with the authority of the token endpoint."),
)

SECURITY_SETTINGS: tuple[Setting, ...] = (
    _text(
        PROTOCOL,
        "How to talk to brokers: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        form=f"one of {', '.join(SecurityProtocol.__members__)}",
    ),
    *_TLS,
    *_SASL,
)
"""The rows; none has a default, so that settings that are not given can be recognized."""

SECURITY_KEYS = frozenset(setting.name for setting in SECURITY_SETTINGS)

SECRET_KEYS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""The keys whose values are never shown, in no log, repr or error."""

KERBEROS = frozenset(
    {
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)

JAVA_ONLY = KERBEROS | frozenset(
    {
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Settings that choose among Java's implementations, or tune them: a file may have them, and they
have no effect."""
