"""The machines of all mechanisms that a listener takes, made from the settings."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.authentication.plain_users import PlainUsers, PlainUsersFile
from storage_engine.broker.authentication.scram_users import ScramUsers
from storage_engine.broker.authentication.token_check import TokenCheck, TokenRules
from storage_engine.broker.authentication.token_keys import KeySource, TokenKeys, check_url
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.sasl_config import JWKS, USERS_FILE, SaslListener
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.security.sasl_client import OAUTHBEARER, PLAIN
from storage_engine.core.security.sasl_exchange import OfferedMechanism
from storage_engine.core.security.sasl_server import PlainServer, SaslServerMechanism
from storage_engine.core.security.sasl_server_oauth import OAuthBearerServer
from storage_engine.core.security.sasl_server_scram import ScramServer
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.core.settings.setting import SettingValue

_OAUTH = "sasl.oauthbearer."


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismParts:
    """What the mechanisms of all listeners work with."""

    config: BrokerConfig
    scram_users: ScramUsers
    scheduler: Scheduler
    clock: Clock
    background: Background


class OfferedMechanisms:
    """The mechanisms of one listener."""

    def __init__(self, name: str, listener: SaslListener, parts: MechanismParts) -> None:
        """ConfigError where a file is not of its form."""
        self._name = name
        self._listener = listener
        self._parts = parts
        self._token_keys: TokenKeys | None = None
        self.by_name = {
            mechanism: OfferedMechanism(make=self._maker(mechanism), max_reauth_ms=reauth_ms)
            for mechanism, reauth_ms in listener.max_reauth_ms.items()
        }

    def start(self) -> None:
        """Begin to read what is not in ZooKeeper."""
        if self._token_keys is not None:
            self._token_keys.start()

    def close(self) -> None:
        if self._token_keys is not None:
            self._token_keys.close()

    def _maker(self, mechanism: str) -> Callable[[], SaslServerMechanism]:
        if mechanism == PLAIN:
            return self._plain()
        if mechanism == OAUTHBEARER:
            return self._oauth()
        return self._scram(ScramMechanism.named(mechanism))

    def _plain(self) -> Callable[[], SaslServerMechanism]:
        listener = self._listener
        users = PlainUsers(listener.plain_users)
        if listener.plain_users_file is None:
            return lambda: PlainServer(users.is_password_of)
        in_file = PlainUsersFile(listener.plain_users_file, key=USERS_FILE)

        def is_password_of(user: str, password: str) -> bool:
            # Both are asked, so that it takes as long wherever the user is.
            answers = in_file.is_password_of(user, password), users.is_password_of(user, password)
            return any(answers)

        return lambda: PlainServer(is_password_of)

    def _scram(self, mechanism: ScramMechanism) -> Callable[[], SaslServerMechanism]:
        # Imported now: the first log-in would take a tenth of a second.
        import scramp  # noqa: F401

        users = self._parts.scram_users
        return lambda: ScramServer(
            mechanism, lambda user: users.find(mechanism, user), secrets.token_urlsafe(24)
        )

    def _oauth(self) -> Callable[[], SaslServerMechanism]:
        parts = self._parts
        url = self._text(JWKS.removeprefix(_OAUTH))
        assert url is not None, "SaslConfig has checked it"
        check_url(url, key=JWKS)
        keys = self._token_keys = TokenKeys(
            KeySource(
                url=url,
                refresh_ms=self._integer("jwks.endpoint.refresh.ms"),
                retry_ms=self._integer("jwks.endpoint.retry.backoff.ms"),
                retry_max_ms=self._integer("jwks.endpoint.retry.backoff.max.ms"),
            ),
            scheduler=parts.scheduler,
            clock=parts.clock,
            background=parts.background,
        )
        audiences = self._value("expected.audience")
        rules = TokenRules(
            audiences=audiences if isinstance(audiences, tuple) else (),
            issuer=self._text("expected.issuer"),
            principal_claim=self._text("sub.claim.name") or "sub",
            clock_skew_s=self._integer("clock.skew.seconds"),
        )
        check = TokenCheck(rules, keys.key)
        return lambda: OAuthBearerServer(check)

    def _text(self, key: str) -> str | None:
        value = self._value(key)
        return value if isinstance(value, str) else None

    def _integer(self, key: str) -> int:
        value = self._value(key)
        assert isinstance(value, int), key
        return value

    def _value(self, key: str) -> SettingValue:
        return self._parts.config.of_listener(self._name, _OAUTH + key, OAUTHBEARER)
