"""The `ssl.SSLContext` of a client, from what its settings say.

librdkafka's names are added to Kafka's here: certificate and key in two files, authorities in a
directory, no verification at all.
"""

import ssl
from pathlib import Path

from storage_engine.client.security.client_security import ClientTls
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.net.tls.contexts import TlsOptions, chosen_suites, client_context
from storage_engine.net.tls.stores import (
    KeyStore,
    KeyStoreSettings,
    TrustStore,
    TrustStoreSettings,
    load_key_store,
    load_pem_key_store,
    load_trust_store,
)

MAX_PEM_BYTES = 4 << 20
"""The authorities of a whole operating system take a quarter of a megabyte."""


def tls_context(tls: ClientTls) -> ssl.SSLContext:
    """Reads the files. ConfigError that names the setting and the file which is not right."""
    options = TlsOptions(protocols=tls.protocols, suites=chosen_suites(tls.cipher_suites))
    is_directory = tls.ca_location is not None and Path(tls.ca_location).is_dir()
    trusted = None if is_directory or not tls.verifies else _trusted(tls)
    context = client_context(
        _shown(tls), trusted, options, checks_host_name=tls.verifies and tls.checks_host_name
    )
    # As in Java, what is in the truststore is trusted, whoever has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not tls.verifies:
        context.verify_mode = ssl.CERT_NONE
    elif is_directory:
        context.load_verify_locations(capath=tls.ca_location)
    return context


def _trusted(tls: ClientTls) -> TrustStore | None:
    if tls.ca_location is not None:
        certificates = Secret(_read(tls.ca_location, "ssl.ca.location"))
        return load_trust_store(TrustStoreSettings(certificates=certificates))
    return load_trust_store(
        TrustStoreSettings(
            type=tls.truststore_type,
            location=tls.truststore_location,
            password=tls.truststore_password,
            certificates=None if tls.trusted_pem is None else Secret(tls.trusted_pem),
        )
    )


def _shown(tls: ClientTls) -> KeyStore | None:
    """Return the client's key store; None without a certificate."""
    if tls.certificate_location is not None and tls.key_location is not None:
        return load_pem_key_store(
            Path(tls.certificate_location),
            Path(tls.key_location),
            tls.key_password,
            "ssl.certificate.location, ssl.key.location",
        )
    return load_key_store(
        KeyStoreSettings(
            type=tls.keystore_type,
            location=tls.keystore_location,
            password=tls.keystore_password,
            certificate_chain=None if tls.certificate_pem is None else Secret(tls.certificate_pem),
            key=tls.key_pem,
            key_password=tls.key_password,
        )
    )


def _read(path: str, key: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_PEM_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "that is no path"
        raise ConfigError(f"{key}={path} can't be read: {reason}") from None
    if b"-----BEGIN " not in data or len(data) > MAX_PEM_BYTES:
        raise ConfigError(f"{key}={path} is no PEM file")
    return data.decode("utf-8", "replace")
