"""TLS contexts: what they need, their cipher suites, and the subjects of certificates."""

import datetime
import re
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from storage_engine.core.errors import ConfigError
from storage_engine.net.tls.contexts import (
    TlsOptions,
    chosen_suites,
    client_context,
    server_context,
    subject_of,
)
from storage_engine.tests.net.tls.certificates import BROKER, key_store_of


def test_who_asks_for_certificates_says_whom_it_trusts():
    store = key_store_of(BROKER)
    with pytest.raises(ConfigError, match="nobody is trusted to vouch for clients"):
        server_context(store, None, TlsOptions(), "required")
    with pytest.raises(ConfigError, match="the listener has no certificate"):
        server_context(None, None, TlsOptions())


def test_suites_are_named_as_in_java_and_as_in_openssl():
    java = chosen_suites(["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    assert java == chosen_suites(["ECDHE-RSA-AES128-GCM-SHA256"])
    assert not java.has_tls_1_3
    context = client_context(None, None, TlsOptions(suites=java), checks_host_name=True)
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigError, match="no such suite is served"):
        chosen_suites(["TLS_RSA_WITH_RC4_128_MD5"])
    with pytest.raises(ConfigError, match="can't be chosen one by one"):
        chosen_suites(["TLS_AES_128_GCM_SHA256"])
    with pytest.raises(ConfigError, match=r"no suite of ssl\.enabled\.protocols=TLSv1.3"):
        client_context(
            None, None, TlsOptions(suites=java, protocols=("TLSv1.3",)), checks_host_name=True
        )


def test_a_subject_is_written_as_java_does():
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'A, "B" + C'),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
            x509.NameAttribute(NameOID.COMMON_NAME, "#app "),
        ]
    )
    key = serialization.load_pem_private_key(BROKER.private_key_pem.bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(key, hashes.SHA256())
    )
    der = made.public_bytes(serialization.Encoding.DER)
    assert subject_of(der) == (
        'CN=\\#app\\ ,1.2.840.113549.1.9.1=#1603614062,O=A\\, \\"B\\" \\+ C,C=DE'
    )
    with pytest.raises(ValueError, match=re.compile(".")):
        subject_of(b"none")
