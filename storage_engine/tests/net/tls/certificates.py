"""Certificates for tests, and the profiles of listeners that are made of them."""

import datetime
import socket
import ssl
from typing import Any

import trustme

from storage_engine.core.security.security_protocol import Secret
from storage_engine.net.tls.contexts import TlsProfile
from storage_engine.net.tls.stores import (
    KeyStore,
    KeyStoreSettings,
    TrustStore,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)

AUTHORITY = trustme.CA(organization_name="Ours")
STRANGER = trustme.CA(organization_name="Theirs")
EXPIRED = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)

BROKER = AUTHORITY.issue_cert("127.0.0.1", "localhost", common_name="broker")
CLIENT = AUTHORITY.issue_cert("app@example.org", common_name="app", organization_name="Example")


def key_store_of(issued: trustme.LeafCert) -> KeyStore:
    store = load_key_store(
        KeyStoreSettings(
            certificate_chain=Secret("".join(p.bytes().decode() for p in issued.cert_chain_pems)),
            key=Secret(issued.private_key_pem.bytes().decode()),
        )
    )
    assert store is not None
    return store


def trust_store_of(authority: trustme.CA) -> TrustStore:
    text = Secret(authority.cert_pem.bytes().decode())
    store = load_trust_store(TrustStoreSettings(certificates=text))
    assert store is not None
    return store


def profile_of(
    issued: trustme.LeafCert = BROKER, authority: trustme.CA = AUTHORITY, **more: Any
) -> TlsProfile:
    return TlsProfile(key_store=key_store_of(issued), trust_store=trust_store_of(authority), **more)


def client_context_of(
    authority: trustme.CA = AUTHORITY, issued: trustme.LeafCert | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if issued is not None:
        issued.configure_cert(context)
    return context


def shaken(port: int, context: ssl.SSLContext, host: str = "127.0.0.1") -> ssl.SSLSocket:
    """A TLS connection to the server."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    return context.wrap_socket(sock, server_hostname=host)
