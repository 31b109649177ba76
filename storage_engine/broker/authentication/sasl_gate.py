"""Stands before the dispatcher on listeners whose clients log in by SASL.

Each new connection there is diverted to a `SaslLogIn` of its own. Connections without a finished
log-in are counted for each listener: a crowd takes no place from clients that have logged in, nor
from brokers, which have a listener of their own. Source: KIP-43, KIP-368.

`OfferedMechanisms` makes the machines of all mechanisms that a listener takes, from the settings.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.authentication.plain_users import PlainUsers, PlainUsersFile
from storage_engine.broker.authentication.sasl_log_in import LogInLimits, LogInParts, SaslLogIn
from storage_engine.broker.authentication.scram_users import ScramUsers
from storage_engine.broker.authentication.token_keys import (
    KeySource,
    TokenCheck,
    TokenKeys,
    TokenRules,
    check_url,
)
from storage_engine.broker.handlers.api_call import ApiCall, HandlerTable
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.sasl_config import JWKS, USERS_FILE, SaslListener
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Background, Clock, Scheduler
from storage_engine.core.security.sasl_client import OAUTHBEARER, PLAIN
from storage_engine.core.security.sasl_server import (
    OAuthBearerServer,
    OfferedMechanism,
    PlainServer,
    SaslExchange,
    SaslServerMechanism,
    ScramServer,
)
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.core.settings.setting import SettingValue
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from storage_engine.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

log = ClientLog(__name__, each=1)

OfferedByListener = Mapping[str, Mapping[str, OfferedMechanism]]
"""Listener -> mechanism name -> mechanism; only listeners that require a log-in."""

IN_PROGRESS_MAX = 1000
"""The most unfinished log-ins of one listener. A log-in takes milliseconds, so this many come and
go in a second after a failover; each costs some kilobytes, and what its client sends."""

GRACE_MS = 2000
"""The least age of an unfinished log-in that is closed in favour of a newer one."""


class SaslGate:
    """The log-ins of all connections of a broker."""

    def __init__(
        self,
        offered: OfferedByListener,
        *,
        scheduler: Scheduler,
        clock: Clock,
        limits: LogInLimits | None = None,
    ) -> None:
        self._clock = clock
        self._offered = offered
        self._parts = LogInParts(
            scheduler=scheduler,
            clock=clock,
            limits=limits or LogInLimits(),
            on_done=self._done,
        )
        self._log_ins: dict[Connection, SaslLogIn] = {}
        self._in_progress: defaultdict[str, dict[SaslLogIn, None]] = defaultdict(dict)
        """First log-ins by listener, in the order in which they began."""
        self._is_open = False

    def open(self) -> None:
        """Accept log-ins from now on; before, a user that was not read yet would be refused."""
        self._is_open = True

    def opened(self, connection: Connection) -> None:
        """The `on_opened` of a server: begins a log-in where the listener requires one."""
        offered = self._offered.get(connection.listener_name)
        if offered is None:
            return
        if not self._is_open:
            # Clients try again after a lost connection, but not after a refusal.
            connection.shut()
            return
        listener = connection.listener_name
        in_progress = self._in_progress[listener]
        if len(in_progress) >= IN_PROGRESS_MAX and not self._made_room(listener):
            self._note_refused(listener)
            connection.shut()
            return
        log_in = SaslLogIn(connection, SaslExchange(offered), self._parts)
        self._log_ins[connection] = log_in
        in_progress[log_in] = None
        connection.on_lost = partial(self._lost, connection)

    def add_apis(self, table: HandlerTable) -> None:
        """Add SaslHandshake and SaslAuthenticate for connections that have logged in: a
        re-authentication begins with SaslHandshake."""
        table.add(sasl_handshake.API, self._handshake)
        table.add(sasl_authenticate.API, _authenticate)

    def _handshake(
        self, call: ApiCall[SaslHandshakeResponse], request: SaslHandshakeRequest
    ) -> None:
        log_in = self._log_ins.get(call.connection)
        if log_in is None:
            # The listener requires no log-in.
            call.respond(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
        else:
            log_in.handshake(call, request)

    def _done(self, log_in: SaslLogIn) -> None:
        self._in_progress[log_in.connection.listener_name].pop(log_in, None)

    def _lost(self, connection: Connection) -> None:
        log_in = self._log_ins.pop(connection)
        self._done(log_in)
        log_in.lost()

    def _made_room(self, listener: str) -> bool:
        """Close the oldest unfinished log-in if it has had GRACE_MS; return whether it had."""
        oldest = next(iter(self._in_progress[listener]))
        if self._clock.monotonic_ms() - oldest.started_ms < GRACE_MS:
            return False
        self._done(oldest)
        self._note_refused(listener)
        oldest.connection.abort()
        return True

    def _note_refused(self, listener: str) -> None:
        log.warning(
            listener,
            "connection closed listener=%s reason=%d others have not logged in yet",
            listener,
            IN_PROGRESS_MAX,
        )


def _authenticate(
    call: ApiCall[SaslAuthenticateResponse], _request: SaslAuthenticateRequest
) -> None:
    """Refuse a token without a handshake before it; other tokens go to the log-in itself."""
    call.respond(
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate came without SaslHandshake before it",
        )
    )


_OAUTH = "sasl.oauthbearer."


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismParts:
    """The parts that the mechanisms of all listeners use."""

    config: BrokerConfig
    scram_users: ScramUsers
    scheduler: Scheduler
    clock: Clock
    background: Background


class OfferedMechanisms:
    """The mechanisms of one listener."""

    def __init__(self, name: str, listener: SaslListener, parts: MechanismParts) -> None:
        """Raises ConfigError where a file has the wrong format."""
        self._name = name
        self._listener = listener
        self._parts = parts
        self._token_keys: TokenKeys | None = None
        self.by_name = {
            mechanism: OfferedMechanism(make=self._maker(mechanism), max_reauth_ms=reauth_ms)
            for mechanism, reauth_ms in listener.max_reauth_ms.items()
        }

    def start(self) -> None:
        """Begin to read the token keys, which are not in ZooKeeper."""
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
            # Both are asked, so that the time does not depend on where the user is.
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
