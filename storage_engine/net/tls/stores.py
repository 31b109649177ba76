"""Key stores and trust stores: a certificate with its key, and the authorities that are trusted.

    ssl.keystore.type      what ssl.keystore.location holds; what the settings hold themselves
    PEM                    key and certificate chain; certificate.chain and key in place of a file
    PKCS12                 one entry with a key, its certificate and the chain
    ssl.truststore.type    ssl.truststore.location; ssl.truststore.certificates in place of a file
    PEM                    certificates
    PKCS12                 certificates

A type that is not given is found out from the file. Whatever is wrong is an error of one line that
names the setting and the file, at the start and at each renewal. Keys are never written to a disk.
Source: KIP-651.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret

if TYPE_CHECKING:
    # It takes 0.1 s to import, which only users of TLS pay.
    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificatePublicKeyTypes,
        PrivateKeyTypes,
        PublicKeyTypes,
    )
    from cryptography.x509 import Certificate

STORE_MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read: a bundle of all public authorities has 0.2 MB."""

_KEY_BLOCK = re.compile(
    rb"-----BEGIN (?P<kind>(?:[A-Z]+ )*PRIVATE KEY)-----.*?-----END (?P=kind)-----", re.DOTALL
)
_CERTIFICATE_BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_DER_SEQUENCE = 0x30
"""The first byte of a PKCS12 store."""
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM, _PKCS12 = "PEM", "PKCS12"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStoreSettings:
    """The `ssl.keystore.` settings and `ssl.key.password`, by their names."""

    type: str | None = None
    location: str | None = None
    password: Secret | None = None
    certificate_chain: Secret | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStoreSettings:
    """The `ssl.truststore.` settings, by their names."""

    type: str | None = None
    location: str | None = None
    password: Secret | None = None
    certificates: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """The certificate that identifies this process, with its key."""

    chain_pem: bytes
    """The certificate, then those of the authorities between it and the root."""
    key_pem: bytes = field(repr=False)
    """The key, not encrypted."""
    subject: str
    names: tuple[str, ...]
    """The host names and addresses of the certificate."""
    valid_from: datetime.datetime
    valid_until: datetime.datetime
    """The end of validity; like `valid_from` in UTC."""
    handshakes_per_turn: int
    """How many times the key signs in one turn of the event loop: a few milliseconds' worth."""

    def days_left(self, now: datetime.datetime) -> int:
        """Whole days until it expires; below 0 when it has."""
        return (self.valid_until - now) // datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """The authorities whose certificates are believed."""

    pem: str


def load_key_store(settings: KeyStoreSettings) -> KeyStore | None:
    """The key store that the settings name; None where they name none. ConfigError."""
    if settings.location is not None:
        if settings.certificate_chain or settings.key:
            raise ConfigError(
                "ssl.keystore.location and ssl.keystore.certificate.chain are both set: a key store"
                " is a file or stands in the settings"
            )
        where = f"ssl.keystore.location={settings.location}"
        data = _read(settings.location, where)
        if _type_of(data, settings.type, where, "ssl.keystore.type") == _PKCS12:
            return _of_pkcs12(data, settings, where)
        return _of_pem(data, data, settings.key_password or settings.password, where)
    if not settings.certificate_chain and not settings.key:
        return None
    if settings.type not in (None, _PEM):
        raise ConfigError(
            f"ssl.keystore.type={settings.type}: a key store in the settings is PEM; name a file"
            " with ssl.keystore.location"
        )
    if not settings.certificate_chain or not settings.key:
        missing = "key" if settings.certificate_chain else "certificate.chain"
        raise ConfigError(
            f"ssl.keystore.{missing} is missing: a certificate and its key go together"
        )
    return _of_pem(
        _pem_text(settings.certificate_chain),
        _pem_text(settings.key),
        settings.key_password,
        "ssl.keystore.certificate.chain",
    )


def load_pem_key_store(chain: Path, key: Path, password: Secret | None, names: str) -> KeyStore:
    """The key store of two PEM files, which may be one; `names` says which settings named them.
    ConfigError."""
    chain_pem = _read(str(chain), f"{names}={chain}")
    key_pem = _read(str(key), f"{names}={key}")
    where = f"{names}={chain}" if chain == key else f"{names}={chain}, {key}"
    return _of_pem(chain_pem, key_pem, password, where)


def load_trust_store(settings: TrustStoreSettings) -> TrustStore | None:
    """The trust store that the settings name; None where they name none. ConfigError."""
    if settings.location is None:
        if not settings.certificates:
            return None
        return _trusted(_pem_text(settings.certificates), "ssl.truststore.certificates")
    if settings.certificates:
        raise ConfigError(
            "ssl.truststore.location and ssl.truststore.certificates are both set: leave out one"
        )
    where = f"ssl.truststore.location={settings.location}"
    data = _read(settings.location, where)
    if _type_of(data, settings.type, where, "ssl.truststore.type") == _PEM:
        return _trusted(data, where)
    _, _, certificates = _opened_pkcs12(data, settings.password, where, "ssl.truststore.password")
    if not certificates:
        raise ConfigError(f"{where}: there is no certificate in it")
    return TrustStore(pem=_pem_of(certificates).decode())


def _read(path: str, where: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(STORE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}: it can't be read ({error.strerror})") from None
    if not data:
        raise ConfigError(f"{where}: it is empty")
    if len(data) > STORE_MAX_BYTES:
        raise ConfigError(f"{where}: it is larger than {STORE_MAX_BYTES} bytes, no store is")
    return data


def _type_of(data: bytes, given: str | None, where: str, key: str) -> str:
    """The type of the file's content. ConfigError when `given` is another type, or neither fits."""
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{where}: it is a JKS store, which is not read: make a PKCS12 one of it with"
            " keytool -importkeystore -deststoretype PKCS12"
        )
    found = _PEM if b"-----BEGIN " in data else _PKCS12
    if found == _PKCS12 and data[0] != _DER_SEQUENCE:
        raise ConfigError(f"{where}: it is neither PEM nor PKCS12")
    if given is not None and given != found:
        raise ConfigError(f"{where}: it is {found}, but {key}={given}")
    return found


def _pem_text(setting: Secret) -> bytes:
    # In a file of properties a line's end may be written as two characters.
    return setting.reveal().replace("\\n", "\n").encode()


def _of_pem(chain: bytes, key: bytes, password: Secret | None, where: str) -> KeyStore:
    from cryptography.hazmat.primitives import serialization

    certificates = _certificates(chain, where)
    block = _KEY_BLOCK.search(key)
    if block is None:
        raise ConfigError(f"{where}: there is no private key in it (BEGIN PRIVATE KEY)")
    is_encrypted = b"ENCRYPTED" in block[0]
    if is_encrypted and not password:
        raise ConfigError(f"{where}: its key is encrypted: set ssl.key.password")
    secret = password.reveal().encode() if password and is_encrypted else None
    try:
        # The full check of an RSA key takes 0.1 s, in which a broker that is asked to renew would
        # do nothing else. A user who can write this file can do more harm than by a bad key.
        loaded = serialization.load_pem_private_key(
            block[0], secret, unsafe_skip_rsa_key_validation=True
        )
    except Exception as error:  # noqa: BLE001 - the library has many, and a key is in none
        if is_encrypted:
            raise ConfigError(f"{where}: ssl.key.password does not open its key") from None
        raise ConfigError(f"{where}: its key can't be read ({type(error).__name__})") from None
    return _key_store(certificates, loaded, where)


def _certificates(pem: bytes, where: str) -> Sequence["Certificate"]:
    from cryptography import x509

    blocks = _CERTIFICATE_BLOCK.findall(pem)
    if not blocks:
        raise ConfigError(f"{where}: there is no certificate in it (BEGIN CERTIFICATE)")
    try:
        return [x509.load_pem_x509_certificate(block) for block in blocks]
    except ValueError:
        raise ConfigError(f"{where}: a certificate in it can't be read") from None


def _trusted(pem: bytes, where: str) -> TrustStore:
    return TrustStore(pem=_pem_of(_certificates(pem, where)).decode())


def _pem_of(certificates: Sequence["Certificate"]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def _of_pkcs12(data: bytes, settings: KeyStoreSettings, where: str) -> KeyStore:
    password = settings.password or settings.key_password
    key, own, others = _opened_pkcs12(data, password, where, "ssl.keystore.password")
    if key is None or own is None:
        raise ConfigError(f"{where}: there is no key with a certificate in it")
    return _key_store(_in_order(own, others), key, where)


def _opened_pkcs12(
    data: bytes, password: Secret | None, where: str, password_key: str
) -> tuple["PrivateKeyTypes | None", "Certificate | None", list["Certificate"]]:
    from cryptography.hazmat.primitives.serialization import pkcs12

    secret = password.reveal().encode() if password else None
    try:
        return pkcs12.load_key_and_certificates(data, secret)
    except ValueError:
        remedy = "does not open it" if password else "is missing, or it is damaged"
        raise ConfigError(f"{where}: {password_key} {remedy}") from None
    except Exception as error:  # noqa: BLE001 - the library has many, and a key is in none
        raise ConfigError(f"{where}: it can't be read ({type(error).__name__})") from None


def _in_order(own: "Certificate", others: Sequence["Certificate"]) -> list["Certificate"]:
    """The certificate and those that vouch for it, one after the other: a store has no order."""
    chain, left = [own], list(others)
    while chain[-1].issuer != chain[-1].subject:
        above = [each for each in left if each.subject == chain[-1].issuer]
        if not above:
            break
        chain.append(above[0])
        left.remove(above[0])
    return chain


def _key_store(
    certificates: Sequence["Certificate"], key: "PrivateKeyTypes", where: str
) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    own = certificates[0]
    if _bytes_of(own.public_key()) != _bytes_of(key.public_key()):
        raise ConfigError(
            f"{where}: its key is not that of its first certificate, {own.subject.rfc4514_string()}"
        )
    return KeyStore(
        chain_pem=_pem_of(certificates),
        key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        subject=own.subject.rfc4514_string(),
        names=_alternative_names(own),
        valid_from=own.not_valid_before_utc,
        valid_until=own.not_valid_after_utc,
        handshakes_per_turn=_handshakes_per_turn(key),
    )


def _bytes_of(key: "PublicKeyTypes | CertificatePublicKeyTypes") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _handshakes_per_turn(key: "PrivateKeyTypes") -> int:
    """An RSA key of 2048 bits signs in 1 ms, one of 4096 in 6; an elliptic curve's in a tenth."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if not isinstance(key, RSAPrivateKey):
        return 16
    return 4 if key.key_size <= 2048 else 1


def _alternative_names(certificate: "Certificate") -> tuple[str, ...]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    dns = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return (*dns, *map(str, addresses))
