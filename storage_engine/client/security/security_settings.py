"""From a client's parsed settings to one `ClientSecurity`: what they say together is checked here.

Nothing is opened. A ConfigError names the setting and the remedy, and never what a secret is.
Source: the documentation of Kafka's clients and of librdkafka.
"""

from storage_engine.client.security.client_security import (
    NO_SECURITY,
    ClientSecurity,
    ClientTls,
)
from storage_engine.client.security.sasl_settings import one_of, sasl_of
from storage_engine.client.security.security_rows import (
    PROTOCOL,
    SECRET_KEYS,
    SECURITY_KEYS,
    Given,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import PROTOCOL_NAMES, Secret, SecurityProtocol

_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_STORE_TYPES = ("PEM", "PKCS12")


def security_of(values: Given) -> ClientSecurity:
    """`values`: of all settings of security by their keys, None for those that are not given."""
    given: Given = {
        key: Secret(value) if key in SECRET_KEYS else value
        for key, value in values.items()
        if key in SECURITY_KEYS and key != PROTOCOL and value is not None
    }
    protocol_text = values.get(PROTOCOL)
    if protocol_text is None:
        if not given:
            return NO_SECURITY
        raise ConfigError(
            f"{min(given)} is given, but {PROTOCOL} is not; set it to SASL_SSL, SSL or "
            "SASL_PLAINTEXT"
        )
    protocol = SecurityProtocol.named(protocol_text)
    if protocol is None:
        raise ConfigError(f"{PROTOCOL} is {protocol_text!r}; it must be one of {PROTOCOL_NAMES}")
    return ClientSecurity(
        protocol=protocol,
        tls=_tls_of(given) if protocol.uses_tls else None,
        sasl=sasl_of(given) if protocol.uses_sasl else None,
    )


def _tls_of(given: Given) -> ClientTls:
    trusted = one_of(given, "ssl.truststore.certificates", "ssl.ca.pem")
    certificate = one_of(given, "ssl.keystore.certificate.chain", "ssl.certificate.pem")
    key = one_of(given, "ssl.keystore.key", "ssl.key.pem")
    one_of(given, "ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates")
    one_of(given, "ssl.ca.location", "ssl.ca.pem")
    one_of(given, "ssl.keystore.location", "ssl.certificate.location")
    one_of(given, "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.pem")
    one_of(given, "ssl.key.location", "ssl.keystore.key", "ssl.key.pem")
    _both(given, "ssl.certificate.location", "ssl.key.location")
    if (certificate is None) != (key is None):
        raise ConfigError(
            "ssl.keystore.certificate.chain and ssl.keystore.key go together; give both as PEM text"
        )
    return ClientTls(
        truststore_location=given.get("ssl.truststore.location"),
        truststore_type=_store_type(given, "ssl.truststore.type"),
        truststore_password=given.get("ssl.truststore.password"),
        trusted_pem=trusted,
        ca_location=given.get("ssl.ca.location"),
        keystore_location=given.get("ssl.keystore.location"),
        keystore_type=_store_type(given, "ssl.keystore.type"),
        keystore_password=given.get("ssl.keystore.password"),
        certificate_pem=certificate,
        key_pem=key,
        certificate_location=given.get("ssl.certificate.location"),
        key_location=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password"),
        verifies=given.get("enable.ssl.certificate.verification", True),
        checks_host_name=_checks_host_name(given),
        protocols=_protocols(given),
        cipher_suites=tuple(given.get("ssl.cipher.suites", ())),
    )


def _both(given: Given, first: str, second: str) -> None:
    for one, other in ((first, second), (second, first)):
        if one in given and other not in given:
            raise ConfigError(f"{one} needs {other}: a certificate and its key go together")


def _store_type(given: Given, key: str) -> str | None:
    text = given.get(key)
    if text is None:
        return None
    if text.upper() == "JKS":
        # Java's default, under which it reads PKCS12 files, too.
        return None
    if text.upper() not in _STORE_TYPES:
        raise ConfigError(f"{key} is {text!r}; it must be {' or '.join(_STORE_TYPES)}")
    return str(text.upper())


def _checks_host_name(given: Given) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    text = given.get(key, "https").lower()
    if text not in ("https", "none", ""):
        raise ConfigError(f"{key} is {given[key]!r}; it must be https, none or empty")
    return bool(text == "https")


def _protocols(given: Given) -> tuple[str, ...]:
    newest = given.get("ssl.protocol", "TLSv1.3")
    if newest not in (*_TLS_VERSIONS, "TLS"):
        raise ConfigError(f"ssl.protocol is {newest!r}; it must be TLSv1.3 or TLSv1.2")
    key = "ssl.enabled.protocols"
    protocols = given.get(key)
    if protocols is None:
        return ("TLSv1.2",) if newest == "TLSv1.2" else _TLS_VERSIONS
    if not protocols or not set(protocols) <= set(_TLS_VERSIONS):
        raise ConfigError(
            f"{key} is {','.join(protocols)!r}; it must be a list of {', '.join(_TLS_VERSIONS)}: "
            "older versions are not safe"
        )
    return tuple(sorted(set(protocols)))
