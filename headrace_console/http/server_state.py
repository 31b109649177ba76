"""The state of all requests: settings, sessions, the open cluster's principal, posted queries."""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import replace

from starlette.requests import Request

from headrace_console.cluster.changes import TimelineEvent
from headrace_console.cluster.registry_upstream import RegistryUpstream
from headrace_console.cluster.upstream import Upstream
from headrace_console.cluster.watcher import ClusterWatcher
from headrace_console.console_settings import ConsoleSettings
from headrace_console.http.sessions import ConsoleUser, LogInLimit, Session, Sessions
from headrace_console.problem import ConsoleError
from headrace_console.queries.query_store import QueryStore
from headrace_console.screens.replay_runs import ReplayRuns
from headrace_console.screens.timeline import LoggedChange, StateChangeSource, logged_event
from storage_engine import __version__
from storage_engine.client.security.client_security import ClientSasl
from storage_engine.core.errors import AuthenticationError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.tools.document import Document


class ServerState:
    """Used on the server's loop, except for methods that block."""

    def __init__(
        self,
        settings: ConsoleSettings,
        port: int,
        *,
        state_changes: StateChangeSource | None = None,
    ) -> None:
        """`port`: the port that is bound."""
        self.settings = settings
        self.port = port
        self.state_changes = state_changes
        self.sessions = Sessions()
        self.log_ins = LogInLimit()
        self.queries = QueryStore()
        self.replays = ReplayRuns()
        self._logged: tuple[Sequence[LoggedChange], list[TimelineEvent]] = (), []
        self._open: ConsoleUser | None = None
        if settings.mechanism is None:
            upstream = Upstream(settings.bootstrap_servers, settings.security, user=None)
            self._open = ConsoleUser(
                upstream, ClusterWatcher(upstream, for_ever=True), None, self._registry(None)
            )

    def start(self) -> None:
        """Start the watcher of an open cluster."""
        if self._open is not None:
            self._open.watcher.start()

    def close(self) -> None:
        self.sessions.end_all()
        self.replays.close()
        if self._open is not None:
            self._open.close()

    @property
    def cookie(self) -> str:
        """The cookie's name, with the port: all ports of a host share their cookies."""
        return f"headrace_console_{self.port}"

    def session_of(self, request: Request) -> Session | None:
        return self.sessions.get(request.cookies.get(self.cookie))

    def principal_of(self, session: Session | None) -> ConsoleUser:
        """Return the session's or the open cluster's user; ConsoleError log_in if there is none."""
        if session is not None and session.principal is not None:
            return session.principal
        if self._open is not None and not self.settings.needs_log_in:
            return self._open
        raise ConsoleError("log_in", "log in: there is no session, or it is over")

    def anonymous_session(self) -> Session | None:
        """Begin a session without a log-in; None if one is needed."""
        return None if self.settings.needs_log_in else self.sessions.begin(self._open)

    def check_log_in(self, user: str, password: str) -> ConsoleUser:
        """Return the user. Blocks. ConsoleError log_in for a wrong name or password."""
        settings = self.settings
        if settings.mechanism is None:
            assert self._open is not None and settings.password is not None
            own = settings.password.reveal().encode()
            if not hmac.compare_digest(own, password.encode("utf-8", "replace")):
                raise ConsoleError("log_in", "the password is wrong")
            return self._open
        security = settings.security
        assert security is not None and security.sasl is not None
        sasl = ClientSasl(
            mechanism=security.sasl.mechanism, username=user, password=Secret(password)
        )
        upstream = Upstream(settings.bootstrap_servers, replace(security, sasl=sasl), user=user)
        try:
            upstream.call(lambda cluster: cluster.refresh([]))
        except AuthenticationError as error:
            upstream.close()
            raise ConsoleError(
                "log_in", f"the cluster did not accept the user and password: {error}"
            ) from None
        except BaseException:
            upstream.close()
            raise
        watcher = ClusterWatcher(upstream, for_ever=False)
        return ConsoleUser(upstream, watcher, user, self._registry(Secret(f"{user}:{password}")))

    def _registry(self, log_in: Secret | None) -> RegistryUpstream | None:
        address = self.settings.registry
        return None if address is None else RegistryUpstream(address, log_in)

    def logged_events(self) -> list[TimelineEvent] | None:
        """Return the events of brokers' logs; None if no log can be read. Blocks."""
        if self.state_changes is None:
            return None
        changes = self.state_changes()
        known, events = self._logged
        if changes is not known:
            events = [logged_event(change) for change in changes]
            self._logged = changes, events
        return events

    def cluster_document(self, session: Session | None) -> Document:
        """Return the part of /session that needs the cluster. Blocks, but not for long."""
        principal = None if session is None else session.principal
        if principal is None:
            hidden = {"name": None, "cluster_id": None, "kind": None}
            return {"cluster": hidden, "now_ms": self.queries.now_ms(), "features": {}}
        watcher = principal.watcher
        cluster_id = watcher.cluster_id()
        return {
            "cluster": {
                "name": self.settings.shown_name,
                "cluster_id": cluster_id,
                "kind": watcher.kind,
            },
            "now_ms": self.queries.now_ms(),
            "features": {
                "queries": True,
                "sinks": watcher.kind != "kafka",
                "typed_topics": watcher.kind != "kafka",
                "access": self.settings.mechanism is not None,
                "schemas": self.settings.registry is not None,
                "timeline": "observed" if self.state_changes is None else "brokers",
            },
        }

    def session_document(self, session: Session | None) -> Document:
        """Return the part of /session that needs no cluster."""
        settings = self.settings
        principal = None if session is None else session.principal
        logged_in = principal is not None
        return {
            "logged_in": logged_in,
            "user": None if principal is None else principal.user,
            "needs_log_in": settings.needs_log_in,
            "mechanism": settings.mechanism or ("password" if settings.password else None),
            "csrf": session.csrf if session is not None and logged_in else None,
            "read_only": settings.read_only,
            "secured": settings.mechanism is not None,
            "version": __version__,
        }


def allowed_hosts(settings: ConsoleSettings, port: int) -> set[str]:
    """Return the Host headers by which browsers may address the console."""
    names: Iterable[str] = (
        ("127.0.0.1", "localhost", "[::1]") if settings.is_loopback else (settings.address,)
    )
    own = 443 if settings.uses_tls else 80
    hosts = {f"{_bracketed(name)}:{port}" for name in names}
    if port == own:
        hosts |= {_bracketed(name) for name in names}
    return hosts | set(settings.allowed_hosts)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
