"""The TLS contexts that are made of stores and of the other `ssl.` settings.

TLS 1.2 and 1.3, nothing older; no renegotiation, no compression. Source: RFC 9325 (the use of TLS).
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError
from storage_engine.net.tls.alerts import AlertingContext
from storage_engine.net.tls.cipher_suites import ALL_SUITES, CipherSuites
from storage_engine.net.tls.stores import KeyStore, TrustStore

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
PROTOCOLS = (TLS_1_2, TLS_1_3)

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}

CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
"""`ssl.client.auth`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """The settings that are not about stores."""

    protocols: tuple[str, ...] = PROTOCOLS
    """`ssl.enabled.protocols`."""
    suites: CipherSuites = ALL_SUITES
    """`ssl.cipher.suites`."""


def server_context(
    key_store: KeyStore | None,
    trust_store: TrustStore | None,
    options: TlsOptions,
    client_auth: str = "none",
) -> ssl.SSLContext:
    """What a listener answers with. ConfigError when something is missing."""
    if key_store is None:
        raise ConfigError(
            "the listener has no certificate: set ssl.keystore.location, or"
            " ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    context = _restricted(AlertingContext(ssl.PROTOCOL_TLS_SERVER), options)
    _load(context, key_store)
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if trust_store is None:
            raise ConfigError(
                f"ssl.client.auth={client_auth}: nobody is trusted to vouch for clients: set"
                " ssl.truststore.location or ssl.truststore.certificates"
            )
        context.load_verify_locations(cadata=trust_store.pem)
    return context


def client_context(
    key_store: KeyStore | None,
    trust_store: TrustStore | None,
    options: TlsOptions,
    *,
    checks_host_name: bool,
) -> ssl.SSLContext:
    """What connections to others are made with. Without a trust store the authorities of the system
    are believed."""
    context = _restricted(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), options)
    context.check_hostname = checks_host_name
    if key_store is not None:
        _load(context, key_store)
    if trust_store is not None:
        context.load_verify_locations(cadata=trust_store.pem)
    else:
        context.load_default_certs()
    return context


def _restricted(context: ssl.SSLContext, options: TlsOptions) -> ssl.SSLContext:
    """To the versions and suites that are wanted."""
    versions = [_VERSIONS[name] for name in options.protocols]
    if not options.suites.has_tls_1_3:
        versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
    if not options.suites.tls_1_2:
        versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_2]
    if not versions:
        raise ConfigError(
            f"ssl.cipher.suites has no suite of ssl.enabled.protocols={','.join(options.protocols)}"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if options.suites.tls_1_2:
        context.set_ciphers(options.suites.tls_1_2)
    # A client could have keys made anew over and over, at our cost.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _load(context: ssl.SSLContext, key_store: KeyStore) -> None:
    with _in_memory(key_store.key_pem + key_store.chain_pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"the certificate {key_store.subject} can't be used for TLS:"
                f" {error.reason or 'it is refused'}"
            ) from None


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The path of a file that is on no disk: the library takes a key from a file only."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
