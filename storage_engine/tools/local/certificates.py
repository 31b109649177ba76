"""The certificate authorities of a local cluster, and the certificates that they give, in PEM.

An authority is for one purpose alone: whoever trusts it trusts no other program's certificates. All
files are for their owner alone.
"""

import ipaddress
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.tools.local.cluster_security import CA_FILE
from storage_engine.tools.local.secret_files import write_secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS = 3650
BROKER_DAYS = 825
"""Longer ones are refused by some clients' libraries."""

CA_KEY_FILE = "ca.key"


class _Authority(NamedTuple):
    certificate: "x509.Certificate"
    key: "EllipticCurvePrivateKey"


def make_authority(folder: Path) -> None:
    """Writes CA_FILE and its key, unless they are there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    if (folder / CA_FILE).exists() and (folder / CA_KEY_FILE).exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Headrace cluster on {socket.gethostname()}"[:64])
    builder = _builder(name, name, key, AUTHORITY_DAYS).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = _signed(builder.add_extension(usage, critical=True), key)
    write_secret(folder / CA_KEY_FILE, _key_text(key))
    write_secret(folder / CA_FILE, _certificate_text(certificate))


def make_certificate(folder: Path, file_name: str, host: str, *, days: int = BROKER_DAYS) -> None:
    """Writes a key and its certificate into one file, for `host` and for this machine, unless the
    file is there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if (folder / file_name).exists():
        return
    authority = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(Path(file_name).stem)
    builder = _builder(name, authority.certificate.subject, key, days)
    names = dict.fromkeys([host, "localhost", socket.gethostname(), "127.0.0.1", "::1"])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        builder.add_extension(
            x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    certificate = _signed(builder, authority.key)
    write_secret(folder / file_name, _key_text(key) + _certificate_text(certificate))


def _authority(folder: Path) -> _Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key((folder / CA_KEY_FILE).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return _Authority(x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes()), key)


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _signed(
    builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey"
) -> "x509.Certificate":
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _name(text: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_text(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate_text(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
