"""The certificate authorities of a local cluster, and the certificates that they give, in PEM.

An authority is for one purpose alone: whoever trusts it trusts no other program's certificates. All
files are for their owner alone.
"""

import ipaddress
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from storage_engine.tools.local.cluster_file import CA_FILE
from storage_engine.tools.local.secret_files import write_whole

AUTHORITY_DAYS = 3650
BROKER_DAYS = 825
"""Longer ones are refused by some clients' libraries."""

CA_KEY_FILE = "ca.key"


def make_authority(folder: Path) -> None:
    """Writes CA_FILE and its key, unless they are there."""
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
    certificate = builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    write_whole(folder / CA_KEY_FILE, _key_text(key))
    write_whole(folder / CA_FILE, certificate.public_bytes(Encoding.PEM))


def make_certificate(folder: Path, file_name: str, host: str, *, days: int = BROKER_DAYS) -> None:
    """Writes a key and its certificate into one file, for `host` and for this machine, unless the
    file is there."""
    if (folder / file_name).exists():
        return
    authority = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
    authority_key = load_pem_private_key((folder / CA_KEY_FILE).read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(Path(file_name).stem)
    builder = _builder(name, authority.subject, key, days)
    names = dict.fromkeys([host, "localhost", socket.gethostname(), "127.0.0.1", "::1"])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        builder.add_extension(
            x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    certificate = builder.sign(authority_key, hashes.SHA256()).public_bytes(Encoding.PEM)
    write_whole(folder / file_name, _key_text(key) + certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
