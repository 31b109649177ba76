"""The TLS of listeners, as the `ssl.` settings describe it: those of the listener, else those of
all."""

from typing import Protocol

from storage_engine.broker.settings.listener_key import PREFIX
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.principal_mapping import PrincipalMapping
from storage_engine.core.security.secret import Secret
from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.core.settings.setting import SettingValue
from storage_engine.net.tls.cipher_suites import chosen_suites
from storage_engine.net.tls.contexts import TlsOptions
from storage_engine.net.tls.profile import TlsProfile
from storage_engine.net.tls.stores import (
    KeyStoreSettings,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)


class TlsSource(Protocol):
    """The settings, static or at run time."""

    def get(self, key: str) -> SettingValue: ...
    def text(self, key: str) -> str: ...
    def items(self, key: str) -> tuple[str, ...]: ...
    def secret(self, key: str) -> Secret | None: ...
    def is_set(self, key: str) -> bool: ...


def load_profile(settings: TlsSource, listener: str, protocol: SecurityProtocol) -> TlsProfile:
    """Reads the listener's files. ConfigError of one line, with its name, for what does not go."""
    prefix = f"{PREFIX}{listener.lower()}."
    try:
        key_store = load_key_store(_key_store_settings(settings, prefix))
        if key_store is None:
            raise ConfigError(
                "TLS needs a certificate: set ssl.keystore.location, or"
                " ssl.keystore.certificate.chain and ssl.keystore.key"
            )
        algorithm = settings.text(f"{prefix}ssl.endpoint.identification.algorithm")
        return TlsProfile(
            key_store=key_store,
            trust_store=load_trust_store(_trust_store_settings(settings, prefix)),
            options=TlsOptions(
                protocols=settings.items(f"{prefix}ssl.enabled.protocols"),
                suites=chosen_suites(settings.items(f"{prefix}ssl.cipher.suites")),
            ),
            client_auth=_client_auth(settings, prefix, protocol),
            checks_host_name=bool(algorithm),
            mapping=PrincipalMapping.parse(settings.text(f"{prefix}ssl.principal.mapping.rules")),
        )
    except ConfigError as failure:
        raise ConfigError(f"listener {listener}: {failure}") from None


def _client_auth(settings: TlsSource, prefix: str, protocol: SecurityProtocol) -> str:
    """Where clients log in by SASL, certificates are asked for only if the listener's own setting
    says so: what stands for all listeners is meant for those without a log-in (KIP-684)."""
    own = f"{prefix}ssl.client.auth"
    return "none" if protocol.uses_sasl and not settings.is_set(own) else settings.text(own)


def _key_store_settings(settings: TlsSource, prefix: str) -> KeyStoreSettings:
    return KeyStoreSettings(
        type=_text(settings, f"{prefix}ssl.keystore.type"),
        location=_text(settings, f"{prefix}ssl.keystore.location"),
        password=settings.secret(f"{prefix}ssl.keystore.password"),
        certificate_chain=settings.secret(f"{prefix}ssl.keystore.certificate.chain"),
        key=settings.secret(f"{prefix}ssl.keystore.key"),
        key_password=settings.secret(f"{prefix}ssl.key.password"),
    )


def _trust_store_settings(settings: TlsSource, prefix: str) -> TrustStoreSettings:
    return TrustStoreSettings(
        type=_text(settings, f"{prefix}ssl.truststore.type"),
        location=_text(settings, f"{prefix}ssl.truststore.location"),
        password=settings.secret(f"{prefix}ssl.truststore.password"),
        certificates=settings.secret(f"{prefix}ssl.truststore.certificates"),
    )


def _text(settings: TlsSource, key: str) -> str | None:
    value = settings.get(key)
    return value if isinstance(value, str) else None
