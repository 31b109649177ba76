"""Key stores and trust stores in every form that settings name, and each wrong file by its line."""

import datetime
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.net.tls.contexts import TlsOptions, server_context
from storage_engine.net.tls.stores import (
    KeyStore,
    KeyStoreSettings,
    TrustStoreSettings,
    load_key_store,
    load_pem_key_store,
    load_trust_store,
)

AUTHORITY = trustme.CA(organization_name="Ours")
ISSUED = AUTHORITY.issue_cert("broker.example", "127.0.0.1", common_name="broker")
CHAIN = b"".join(pem.bytes() for pem in ISSUED.cert_chain_pems)
KEY = ISSUED.private_key_pem.bytes()
LOADED_KEY = serialization.load_pem_private_key(KEY, None)
LOADED_CHAIN = x509.load_pem_x509_certificates(CHAIN)
AUTHORITY_PEM = AUTHORITY.cert_pem.bytes()


def encrypted_key(password: bytes) -> bytes:
    return LOADED_KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )


def pkcs12_store(password: bytes | None = b"secret") -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    authority = x509.load_pem_x509_certificate(AUTHORITY_PEM)
    return pkcs12.serialize_key_and_certificates(
        b"broker", LOADED_KEY, LOADED_CHAIN[0], [authority], encryption
    )


def stored(tmp_path: Path, data: bytes, name: str = "store") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def key_store(**settings: object) -> KeyStore:
    loaded = load_key_store(KeyStoreSettings(**settings))
    assert loaded is not None
    return loaded


def refusal(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_key_store(KeyStoreSettings(**settings))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_pem_file_holds_key_and_chain(tmp_path):
    store = key_store(location=stored(tmp_path, KEY + CHAIN))
    assert store.names == ("broker.example", "127.0.0.1")
    assert "CN=broker" in store.subject
    assert store.valid_from < datetime.datetime.now(datetime.UTC) < store.valid_until
    assert server_context(store, None, TlsOptions()).verify_mode is ssl.CERT_NONE


def test_a_chain_and_a_key_may_stand_in_the_settings():
    store = key_store(certificate_chain=Secret(CHAIN.decode()), key=Secret(KEY.decode()))
    assert store.names == ("broker.example", "127.0.0.1")
    one_line = Secret(KEY.decode().replace("\n", "\\n"))
    assert key_store(certificate_chain=Secret(CHAIN.decode()), key=one_line).key_pem


def test_an_encrypted_key_needs_its_password(tmp_path):
    location = stored(tmp_path, encrypted_key(b"open") + CHAIN)
    assert key_store(location=location, key_password=Secret("open")).key_pem
    assert refusal(location=location).endswith("its key is encrypted: set ssl.key.password")
    message = refusal(location=location, key_password=Secret("wrong"))
    assert message.endswith("ssl.key.password does not open its key")
    assert "wrong" not in message


@pytest.mark.parametrize("password", [b"secret", None])
def test_a_pkcs12_store_is_opened_with_its_password(tmp_path, password):
    location = stored(tmp_path, pkcs12_store(password))
    given = Secret(password.decode()) if password else None
    store = key_store(location=location, password=given, type="PKCS12")
    assert store.chain_pem.count(b"BEGIN CERTIFICATE") == 2
    server_context(store, None, TlsOptions())


def test_a_pkcs12_store_with_a_wrong_password_is_told(tmp_path):
    location = stored(tmp_path, pkcs12_store())
    assert refusal(location=location, password=Secret("no")) == (
        f"ssl.keystore.location={location}: ssl.keystore.password does not open it"
    )
    assert "is missing, or it is damaged" in refusal(location=location)


def test_two_pem_files_are_a_key_store_as_well(tmp_path):
    chain, key = Path(stored(tmp_path, CHAIN, "chain")), Path(stored(tmp_path, KEY, "key"))
    assert load_pem_key_store(chain, key, None, "ssl.certificate.location").key_pem


@pytest.mark.parametrize(
    ("data", "settings", "reason"),
    [
        (b"", {}, "it is empty"),
        (KEY, {}, "there is no certificate in it"),
        (CHAIN, {}, "there is no private key in it"),
        (KEY + AUTHORITY_PEM, {}, "its key is not that of its first certificate"),
        (KEY + CHAIN.replace(b"MII", b"!!!"), {}, "a certificate in it can't be read"),
        (KEY.replace(b"\nM", b"\n!", 1) + CHAIN, {}, "its key can't be read"),
        (KEY + CHAIN, {"type": "PKCS12"}, "it is PEM, but ssl.keystore.type=PKCS12"),
        (b"\xfe\xed\xfe\xed123", {}, "keytool -importkeystore -deststoretype PKCS12"),
        (b"garbage", {"password": Secret("x")}, "it is neither PEM nor PKCS12"),
        (b"0garbage", {"password": Secret("x")}, "ssl.keystore.password does not open it"),
        (bytes(5 << 20), {}, "is larger than"),
    ],
)
def test_each_wrong_file_is_told_by_its_name(tmp_path, data, settings, reason):
    location = stored(tmp_path, data)
    message = refusal(location=location, **settings)
    assert message.startswith(f"ssl.keystore.location={location}: ")
    assert reason in message


def test_a_file_that_is_not_there_is_told(tmp_path):
    assert "No such file" in refusal(location=str(tmp_path / "none"))
    assert "Is a directory" in refusal(location=str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"location": "/x", "key": Secret("k")}, "are both set"),
        ({"key": Secret("k")}, "ssl.keystore.certificate.chain is missing"),
        ({"certificate_chain": Secret("c")}, "ssl.keystore.key is missing"),
        ({"type": "PKCS12", "key": Secret("k")}, "a key store in the settings is PEM"),
    ],
)
def test_settings_that_contradict_each_other_are_told(settings, reason):
    assert reason in refusal(**settings)


def test_no_setting_is_no_store():
    assert load_key_store(KeyStoreSettings()) is None
    assert load_trust_store(TrustStoreSettings()) is None


def test_trust_stores_in_every_form(tmp_path):
    pem = stored(tmp_path, AUTHORITY_PEM, "pem")
    others = pkcs12.serialize_key_and_certificates(
        None,
        None,
        None,
        [x509.load_pem_x509_certificate(AUTHORITY_PEM)],
        serialization.BestAvailableEncryption(b"pw"),
    )
    p12 = stored(tmp_path, others, "p12")
    for settings in (
        TrustStoreSettings(location=pem),
        TrustStoreSettings(location=p12, password=Secret("pw")),
        TrustStoreSettings(certificates=Secret(AUTHORITY_PEM.decode())),
    ):
        store = load_trust_store(settings)
        assert store is not None
        assert store.pem.encode() == AUTHORITY_PEM
    with pytest.raises(ConfigError, match="no certificate in it"):
        load_trust_store(TrustStoreSettings(location=stored(tmp_path, KEY, "key")))


def test_a_store_shows_no_secret(tmp_path):
    settings = KeyStoreSettings(
        location=stored(tmp_path, KEY + CHAIN), password=Secret("hush"), key=None
    )
    shown = repr(settings) + repr(load_key_store(settings))
    assert "hush" not in shown
    assert "PRIVATE KEY" not in shown


def test_days_left_are_whole_days():
    store = key_store(certificate_chain=Secret(CHAIN.decode()), key=Secret(KEY.decode()))
    day = datetime.timedelta(days=1)
    assert store.days_left(store.valid_until - 2 * day) == 2
    assert store.days_left(store.valid_until + day / 2) == -1
