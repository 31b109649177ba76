"""The security settings of a client as one value: it can be compared, hashed and pickled.

Rule: secrets are `Secret`s, which no log, repr or exception shows. Nothing is read or connected
here.
"""

from dataclasses import dataclass, field

from storage_engine.core.security.security_protocol import Secret, SecurityProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """How the certificates of brokers are verified, and which certificate is shown to them. Without
    any authority, the operating system's authorities are trusted."""

    truststore_location: str | None = None
    truststore_type: str | None = None
    """PEM or PKCS12; None: as the file looks."""
    truststore_password: Secret | None = None
    trusted_pem: str | None = field(default=None, repr=False)
    """Certificates as text, instead of a file."""
    ca_location: str | None = None
    """A PEM file, or a directory that `openssl rehash` has prepared."""

    keystore_location: str | None = None
    keystore_type: str | None = None
    keystore_password: Secret | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: Secret | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: Secret | None = None

    verifies: bool = True
    """False: any certificate is accepted, so anybody may read along."""
    checks_host_name: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """The source of the token of OAUTHBEARER: an endpoint, a file, or these settings themselves,
    whose token has no signature."""

    endpoint_url: str | None = None
    """`http:` and `https:` ask an endpoint for a token by client credentials (RFC 6749), `file:`
    names the file that has the token."""
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca_location: str | None = None
    """The file with the authority of the endpoint's certificate."""
    connect_timeout_ms: int = 10_000
    refresh_factor: float = 0.8
    """The part of a token's lifetime after which another one is asked for."""
    unsecured_claims: tuple[tuple[str, "ClaimValue"], ...] = ()
    """The claims of a token without a signature, for listeners of tests."""
    unsecured_lifetime_s: int = 3_600


ClaimValue = str | float | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSasl:
    """The client's SASL mechanism and credentials."""

    mechanism: str
    username: str = ""
    password: Secret | None = None
    tokens: TokenSettings | None = None

    @property
    def user(self) -> str:
        """The name of the user in messages."""
        if self.tokens is None:
            return self.username
        claims = dict(self.tokens.unsecured_claims)
        return self.tokens.client_id or str(claims.get("sub", "the bearer of a token"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """`tls` and `sasl` are None where `protocol` has none."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ClientTls | None = None
    sasl: ClientSasl | None = None


NO_SECURITY = ClientSecurity()
"""An unencrypted connection to a listener without authentication."""
