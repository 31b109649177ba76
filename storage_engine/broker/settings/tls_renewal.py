"""Certificates are renewed while the broker runs, and their ends are told in good time.

    a setting of a listener was read  -> its files are read beside the loop
    they, or the settings, differ     -> connections from then on are made with the new ones
    something is wrong with them      -> one line in the log, and all stays as it was

Before a setting is stored, the broker that it is for tries it. Once a day the log says for how many
days each certificate is still good. Source: KIP-226.
"""

import datetime
import logging
from collections.abc import Mapping

from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.broker.settings.listener_tls import load_profile
from storage_engine.core.errors import ConfigError
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.net.tls.profile import ListenerTls, TlsProfile

log = logging.getLogger(__name__)

TOLD_EVERY_MS = 24 * 60 * 60 * 1000
WARN_DAYS = 30
"""From so many days before its end on a certificate is told as a warning."""


class TlsRenewal:
    """Looks after the TLS of all listeners."""

    def __init__(
        self,
        listeners: Mapping[str, ListenerTls],
        config: DynamicConfig,
        *,
        background: Background,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        """`listeners`: those with TLS, by their names."""
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
        """ConfigError when the listeners' TLS would not work under these settings."""
        for name in self._listeners:
            ListenerTls(name, self._load(trial, name))

    def _load(self, config: DynamicConfig, name: str) -> TlsProfile:
        return load_profile(config, name, config.static.listeners.named(name).protocol)

    def read_again(self) -> None:
        """Take up what the settings name now."""
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
