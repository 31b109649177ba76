"""All that one listener's TLS is made of, as its settings and files were at one time."""

import ssl
from dataclasses import dataclass, field

from storage_engine.core.security.principal import ANONYMOUS, Principal
from storage_engine.core.security.principal_mapping import PrincipalMapping
from storage_engine.net.tls.contexts import TlsOptions, client_context, server_context
from storage_engine.net.tls.stores import KeyStore, TrustStore
from storage_engine.net.tls.subjects import subject_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProfile:
    """Two that are equal make the same connections."""

    key_store: KeyStore
    trust_store: TrustStore | None = None
    options: TlsOptions = field(default_factory=TlsOptions)
    client_auth: str = "none"
    """`ssl.client.auth`."""
    checks_host_name: bool = True
    """Whether those that connect to others check their names."""
    mapping: PrincipalMapping = field(default_factory=PrincipalMapping)

    def server_context(self) -> ssl.SSLContext:
        """ConfigError when something is missing."""
        return server_context(self.key_store, self.trust_store, self.options, self.client_auth)

    def client_context(self) -> ssl.SSLContext:
        """For connections to other brokers, with the listener's own certificate."""
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
        """ConfigError, and all stays as it was, for a profile that does not work."""
        server, client = profile.server_context(), profile.client_context()
        self.profile, self.server, self.client = profile, server, client

    def principal_of(self, tls: ssl.SSLObject) -> Principal | None:
        """Who the client is by its certificate: ANONYMOUS without one; None when no rule gives it a
        name."""
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            name = self.profile.mapping.name_of(subject_of(certificate))
        except ValueError:
            return None
        return Principal(name) if name else None
