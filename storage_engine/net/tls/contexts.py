"""All that one listener's TLS is made of, and the TLS towards ZooKeeper, as settings and files were
at one time. TLS 1.2 and 1.3, nothing older; no renegotiation, no compression.

Only suites that keep what was sent secret when a key becomes known later (ephemeral keys), with
authenticated encryption, by their names in Java or in OpenSSL. Those of TLS 1.3 can't be chosen one
by one: Python's library has no call for it.

The subject of a certificate is written as Kafka writes it: RFC 2253, with Java's names of
attributes, so that super users, ACLs and mapping rules of a cluster that has run on Kafka's brokers
go on to fit.

    CN=app,OU=Data,O=Example,C=DE      the last attribute of the certificate first
    1.2.840.113549.1.9.1=#16036140...  an attribute without a short name: its bytes in DER

The event loops close a connection as soon as its handshake has failed. The alert that names the
cause, such as "unknown ca", is then still in the library's buffer, and the client sees a connection
that was lost. Here a handshake that has failed looks to the loop like one that waits for its
client: so the loop sends the alert. What the client says from then on is thrown away. It ends when
the client has closed, or when its time is over. Source: RFC 8446 (section 6.2), RFC 5288, 5289,
7905, 9325, 2253, KIP-515, javax.security.auth.x500.X500Principal.getName().
"""

import contextlib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.principal import ANONYMOUS, Principal, PrincipalMapping
from storage_engine.core.settings.zookeeper_settings import PREFIX, ZooKeeperTls
from storage_engine.net.tls.stores import (
    KeyStore,
    KeyStoreSettings,
    TrustStore,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)

if TYPE_CHECKING:
    from cryptography import x509

OnRefused = Callable[[ssl.SSLError], None]

on_refused: ContextVar[OnRefused | None] = ContextVar("on_refused", default=None)
"""Set in the task that has the loop begin a handshake: called when that fails with an alert for the
client. The caller ends the connection if the client does not. Without it a handshake fails at
once."""


class AlertingHandshake(ssl.SSLObject):
    """A server's side of a connection, made by `AlertingContext`."""

    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _on_refused: OnRefused | None = None
    _is_refused = False

    def attend(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, on_refused: OnRefused | None
    ) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._on_refused = on_refused

    def do_handshake(self) -> None:
        """SSLWantReadError while something must be sent or received, also after a refusal."""
        if self._is_refused:
            self._wait_for_the_end()
        try:
            super().do_handshake()
            self._on_refused = None
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            refused = self._on_refused
            if refused is None or not self._outgoing.pending:
                raise
            self._is_refused = True
            refused(error)
            self._wait_for_the_end()

    def _wait_for_the_end(self) -> None:
        # Bytes that nobody takes would be memory that the client fills.
        self._incoming.read()
        raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the client has been sent an alert")


class AlertingContext(ssl.SSLContext):
    """A server's context, for an event loop."""

    sslobject_class = AlertingHandshake

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Overrides the method that the loops call for each connection."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, AlertingHandshake)
        made.attend(incoming, outgoing, on_refused.get())
        return made


_OF_TLS_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}
_OF_TLS_1_3 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_KEY = "ssl.cipher.suites"


class CipherSuites(NamedTuple):
    tls_1_2: str
    """The suites of TLS 1.2 in OpenSSL's form; empty: none."""
    has_tls_1_3: bool


ALL_SUITES = CipherSuites(":".join(_OF_TLS_1_2.values()), True)


def chosen_suites(names: Sequence[str]) -> CipherSuites:
    """The suites of those names, all when none is given. ConfigError."""
    if not names:
        return ALL_SUITES
    of_tls_1_2 = []
    of_tls_1_3 = set()
    for name in names:
        if name in _OF_TLS_1_3:
            of_tls_1_3.add(name)
        elif name in _OF_TLS_1_2:
            of_tls_1_2.append(_OF_TLS_1_2[name])
        elif name in _OF_TLS_1_2.values():
            of_tls_1_2.append(name)
        else:
            known = ", ".join((*_OF_TLS_1_3, *_OF_TLS_1_2))
            raise ConfigError(f"{_KEY}={name}: no such suite is served, there are {known}")
    if of_tls_1_3 and len(of_tls_1_3) < len(_OF_TLS_1_3):
        raise ConfigError(
            f"{_KEY}={','.join(names)}: the suites of TLS 1.3 can't be chosen one by one: name all"
            f" of {', '.join(_OF_TLS_1_3)}, or none of them to serve TLS 1.2 alone"
        )
    return CipherSuites(":".join(of_tls_1_2), bool(of_tls_1_3))


TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
PROTOCOLS = (TLS_1_2, TLS_1_3)

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}

CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
"""The values of `ssl.client.auth`."""


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
    """The context of a listener's connections. ConfigError when a store is missing."""
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
    """The context of connections to others. Without a trust store the authorities of the system are
    trusted."""
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
    """Restrict a context to the versions and suites of `options`."""
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


_NAMES = re.compile(r"(?<![\w./])ssl\.(?=keystore\.|truststore\.|enabled\.|cipher\.)")


def zookeeper_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Reads the files. ConfigError of one line for what is wrong with one."""
    try:
        key_store = load_key_store(
            KeyStoreSettings(
                type=tls.keystore_type,
                location=tls.keystore_location,
                password=tls.keystore_password,
            )
        )
        trust_store = load_trust_store(
            TrustStoreSettings(
                type=tls.truststore_type,
                location=tls.truststore_location,
                password=tls.truststore_password,
            )
        )
        options = TlsOptions(protocols=tls.protocols, suites=chosen_suites(tls.cipher_suites))
        context = client_context(
            key_store, trust_store, options, checks_host_name=tls.checks_host_name
        )
    except ConfigError as failure:
        # There is one password towards ZooKeeper, of the file and of the key in it.
        text = str(failure).replace("ssl.key.password", "ssl.keystore.password")
        raise ConfigError(_NAMES.sub(f"{PREFIX}ssl.", text)) from None
    # As in Java, certificates in the trust store are trusted, whatever their issuer.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


SUBJECT_MAX_CHARACTERS = 4096
"""The longest subject that is matched: mapping rules are regular expressions."""

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SPECIAL = re.compile(r'([,+"\\<>;])')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER; empty when it has none, or one that is too long.
    ValueError for what is no certificate."""
    from cryptography import x509

    subject = x509.load_der_x509_certificate(certificate).subject
    text = ",".join(
        "+".join(_attribute(x509.Name([each]), each) for each in rdn)
        for rdn in reversed(list(subject.rdns))
    )
    return text if len(text) <= SUBJECT_MAX_CHARACTERS else ""


def _attribute(alone: "x509.Name", attribute: "x509.NameAttribute[str | bytes]") -> str:
    oid = attribute.oid.dotted_string
    name = _SHORT_NAMES.get(oid)
    value = attribute.value
    if name is None or not isinstance(value, str):
        return f"{oid}=#{_value_of(alone.public_bytes()).hex()}"
    return f"{name}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text


def _value_of(name: bytes) -> bytes:
    """The value within a name of one attribute: name { set { attribute { id, value } } }."""
    for _ in range(3):
        name = _content(name)[0]
    return _content(name)[1]


def _content(der: bytes) -> tuple[bytes, bytes]:
    """The content of the first element of `der`, and the bytes after the element."""
    size, start = der[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[2:start], "big")
    return der[start : start + size], der[start + size :]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProfile:
    """The stores and settings of a listener's TLS; equal profiles make the same connections."""

    key_store: KeyStore
    trust_store: TrustStore | None = None
    options: TlsOptions = field(default_factory=TlsOptions)
    client_auth: str = "none"
    """`ssl.client.auth`."""
    checks_host_name: bool = True
    """Whether connections to others check the host name in the certificate."""
    mapping: PrincipalMapping = field(default_factory=PrincipalMapping)

    def server_context(self) -> ssl.SSLContext:
        """The context of the listener's connections. ConfigError when a store is missing."""
        return server_context(self.key_store, self.trust_store, self.options, self.client_auth)

    def client_context(self) -> ssl.SSLContext:
        """The context of connections to other brokers, with the listener's own certificate."""
        return client_context(
            self.key_store,
            self.trust_store,
            self.options,
            checks_host_name=self.checks_host_name,
        )


class ListenerTls:
    """The TLS of a listener, and of the connections to others' listeners of that name. A renewal
    counts for the connections that begin after it."""

    def __init__(self, name: str, profile: TlsProfile) -> None:
        """ConfigError for a profile that does not work."""
        self.name = name
        self.profile = profile
        self.server: ssl.SSLContext = profile.server_context()
        self.client: ssl.SSLContext = profile.client_context()

    def renew(self, profile: TlsProfile) -> None:
        """Use another profile. ConfigError, and no change, for one that does not work."""
        server, client = profile.server_context(), profile.client_context()
        self.profile, self.server, self.client = profile, server, client

    def principal_of(self, tls: ssl.SSLObject) -> Principal | None:
        """The client's principal by its certificate: ANONYMOUS without one; None when no mapping
        rule gives it a name."""
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            name = self.profile.mapping.name_of(subject_of(certificate))
        except ValueError:
            return None
        return Principal(name) if name else None
