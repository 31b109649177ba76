"""The TLS of listeners, as the `ssl.` settings describe it: the listener's own, otherwise the
broker's.

Certificates are renewed while the broker runs, and their expiry is logged in good time.

    a setting of a listener was read  -> its files are read beside the loop
    they, or the settings, differ     -> connections from then on are made with the new ones
    something is wrong with them      -> one line in the log, and all stays as it was

Before a setting is stored, the broker that it is for tries it. Once a day the log says for how many
days each certificate is still good. Source: KIP-226.
"""

import datetime
import logging
from collections.abc import Mapping
from typing import Protocol

from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_map import PREFIX
from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.security.principal import PrincipalMapping
from storage_engine.core.security.security_protocol import Secret, SecurityProtocol
from storage_engine.core.settings.setting import SettingValue
from storage_engine.net.tls.contexts import ListenerTls, TlsOptions, TlsProfile, chosen_suites
from storage_engine.net.tls.stores import (
    KeyStoreSettings,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)

log = logging.getLogger(__name__)


class TlsSource(Protocol):
    """The settings, static or at run time."""

    def get(self, key: str) -> SettingValue: ...
    def text(self, key: str) -> str: ...
    def items(self, key: str) -> tuple[str, ...]: ...
    def secret(self, key: str) -> Secret | None: ...
    def is_set(self, key: str) -> bool: ...


def load_profile(settings: TlsSource, listener: str, protocol: SecurityProtocol) -> TlsProfile:
    """Read the listener's files. Raises ConfigError of one line, with the listener's name."""
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
    """`ssl.client.auth`; where clients log in by SASL, only the listener's own: the setting for all
    listeners is meant for those without a log-in (KIP-684)."""
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


TOLD_EVERY_MS = 24 * 60 * 60 * 1000
WARN_DAYS = 30
"""The days before its expiry from which a certificate is logged as a warning."""


class TlsRenewal:
    """Renews the TLS of all listeners, and logs when certificates expire."""

    def __init__(
        self,
        listeners: Mapping[str, ListenerTls],
        config: DynamicConfig,
        *,
        background: Background,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        """`listeners`: the listeners with TLS, by name."""
        self._listeners = listeners
        self._config = config
        self._background = background
        self._scheduler = scheduler
        self._clock = clock
        self._is_reading = False
        self._is_to_read_again = False

    def start(self) -> None:
        config = self._config
        config.checks.append(self.check)
        config.on_read.append(self.read_again)
        self._tell()

    def check(self, trial: DynamicConfig) -> None:
        """Raises ConfigError when the listeners' TLS would not work with these settings."""
        for name in self._listeners:
            ListenerTls(name, self._load(trial, name))

    def _load(self, config: DynamicConfig, name: str) -> TlsProfile:
        return load_profile(config, name, config.static.listeners.named(name).protocol)

    def read_again(self) -> None:
        """Read the files of all listeners again."""
        if self._is_reading:
            self._is_to_read_again = True
            return
        self._is_reading = True
        self._background.submit(self._profiles, self._take, self._failed)

    def _profiles(self) -> dict[str, TlsProfile | ConfigError]:
        found: dict[str, TlsProfile | ConfigError] = {}
        for name in self._listeners:
            try:
                found[name] = self._load(self._config, name)
            except ConfigError as failure:
                found[name] = failure
        return found

    def _take(self, profiles: dict[str, TlsProfile | ConfigError]) -> None:
        for name, profile in profiles.items():
            listener = self._listeners[name]
            try:
                if isinstance(profile, ConfigError):
                    raise profile
                if profile != listener.profile:
                    listener.renew(profile)
                    log.info("TLS renewed listener=%s", name)
                    self._tell_one(listener)
            except ConfigError as failure:
                log.error("TLS not renewed, it stays as it was: %s", failure)
        self._ended()

    def _failed(self, error: Exception) -> None:
        log.error("TLS not renewed, it stays as it was", exc_info=error)
        self._ended()

    def _ended(self) -> None:
        self._is_reading = False
        if self._is_to_read_again:
            self._is_to_read_again = False
            self.read_again()

    def _tell(self) -> None:
        for listener in self._listeners.values():
            self._tell_one(listener)
        self._scheduler.call_later(TOLD_EVERY_MS, self._tell)

    def _tell_one(self, listener: ListenerTls) -> None:
        store = listener.profile.key_store
        now = datetime.datetime.fromtimestamp(self._clock.wall_ms() / 1000, datetime.UTC)
        days = store.days_left(now)
        level = logging.INFO if days >= WARN_DAYS else logging.WARNING
        log.log(
            level if days >= 0 else logging.ERROR,
            "certificate listener=%s subject=%s names=%s expires_in_days=%d%s",
            listener.name,
            store.subject,
            ",".join(store.names) or "none",
            days,
            "" if days >= 0 else ": it has expired, clients that check it refuse this broker",
        )
