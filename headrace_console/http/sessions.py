"""Sessions with random ids, in memory, and the count of failed log-ins.

A session ends half an hour after its last request, and twelve hours after its log-in; its
connections to the cluster are closed with it. Source: R-CON3.
"""

import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace_console.cluster.registry_upstream import RegistryUpstream
from headrace_console.cluster.upstream import Upstream
from headrace_console.cluster.watcher import ClusterWatcher
from headrace_console.problem import ConsoleError
from headrace_console.screens.problems import SeenProblems

IDLE_S = 30 * 60
LONGEST_S = 12 * 60 * 60
MOST_SESSIONS = 200
"""Beyond it, the session silent longest ends: requests without a cookie can't fill the memory."""

MOST_SESSIONS_EACH = 10
"""The most sessions of one user of a secured cluster: each has own connections and threads."""

FAILURES_PER_USER = 5
FAILURES_PER_ADDRESS = 20
FAILURE_WINDOW_S = 60.0
MOST_COUNTED = 10_000


@dataclass(slots=True, eq=False)
class ConsoleUser:
    """A user of the cluster, or all users of an open one, with the connections."""

    upstream: Upstream
    watcher: ClusterWatcher
    user: str | None
    registry: RegistryUpstream | None = None
    """The schema registry; None where the console has none."""
    problems: SeenProblems = field(default_factory=SeenProblems)

    def close(self) -> None:
        self.watcher.close()
        self.upstream.close()
        if self.registry is not None:
            self.registry.close()


@dataclass(slots=True, eq=False)
class Session:
    """The session of one browser."""

    id: str = field(repr=False)
    csrf: str = field(repr=False)
    principal: ConsoleUser | None
    """The user; None before the log-in."""
    began_s: float
    seen_s: float
    memory: "OrderedDict[str, object]" = field(default_factory=OrderedDict)
    """Objects that a later request of this session refers to, such as previews."""

    def check_csrf(self, token: str | None) -> None:
        """Check that a page of the console has sent the request; else ConsoleError csrf."""
        if token is None or not hmac.compare_digest(token.encode(), self.csrf.encode()):
            raise ConsoleError(
                "csrf",
                "the request does not have the token of this session in X-CSRF-Token; load the "
                "page again",
            )


MOST_REMEMBERED = 20
"""The most previews that are kept of a session."""


def remember(session: Session, kind: str, thing: object) -> str:
    """Keep an object for a later request of this session, and return its id."""
    name = f"{kind}-{secrets.token_urlsafe(12)}"
    session.memory[name] = thing
    while len(session.memory) > MOST_REMEMBERED:
        session.memory.popitem(last=False)
    return name


def _is_of(session: Session, user: str) -> bool:
    return session.principal is not None and session.principal.user == user


class Sessions:
    """All sessions. Used on the server's loop only, except for `is_alive`."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def get(self, session_id: str | None) -> Session | None:
        """Return the session of a cookie if it has not ended; this keeps it alive."""
        self.end_idle()
        session = None if session_id is None else self._sessions.get(session_id)
        if session is not None:
            session.seen_s = self._now_s()
            self._sessions.move_to_end(session.id)
        return session

    def begin(self, principal: ConsoleUser | None) -> Session:
        """Begin a session under a new id: the id from before a log-in is never used after it."""
        now_s = self._now_s()
        session = Session(
            id=secrets.token_urlsafe(32),
            csrf=secrets.token_urlsafe(32),
            principal=principal,
            began_s=now_s,
            seen_s=now_s,
        )
        self._sessions[session.id] = session
        while len(self._sessions) > MOST_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        if principal is not None and principal.user is not None:
            mine = [each for each in self._sessions.values() if _is_of(each, principal.user)]
            for older in mine[:-MOST_SESSIONS_EACH]:
                self.end(older)
        return session

    def is_alive(self, session: Session | None) -> bool:
        """Whether the session has not ended; this does not keep it alive."""
        return session is None or self._sessions.get(session.id) is session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        if session.principal is not None and session.principal.user is not None:
            session.principal.close()

    def end_idle(self) -> None:
        """End sessions that are idle or too old."""
        now_s = self._now_s()
        over = [
            session
            for session in self._sessions.values()
            if now_s - session.seen_s > IDLE_S or now_s - session.began_s > LONGEST_S
        ]
        for session in over:
            self.end(session)

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)


class LogInLimit:
    """Failed log-ins of the last minute, by address and user, and by address."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._failures: OrderedDict[tuple[str, str | None], deque[float]] = OrderedDict()

    def check(self, address: str, user: str) -> None:
        """ConsoleError too_many after too many failures."""
        now_s = self._now_s()
        for key, most in (
            ((address, user), FAILURES_PER_USER),
            ((address, None), FAILURES_PER_ADDRESS),
        ):
            times = self._failures.get(key)
            while times and now_s - times[0] > FAILURE_WINDOW_S:
                times.popleft()
            if times and len(times) >= most:
                wait_s = int(FAILURE_WINDOW_S - (now_s - times[0])) + 1
                raise ConsoleError(
                    "too_many",
                    f"too many log-ins have failed; try again in {wait_s} s",
                    retry_after_s=wait_s,
                )

    def succeeded(self, address: str, user: str) -> None:
        """Take back the failure that was counted before the attempt."""
        for key in ((address, user), (address, None)):
            times = self._failures.get(key)
            if times:
                times.pop()

    def failed(self, address: str, user: str) -> None:
        for key in ((address, user), (address, None)):
            self._failures.setdefault(key, deque(maxlen=FAILURES_PER_ADDRESS)).append(self._now_s())
            self._failures.move_to_end(key)
        while len(self._failures) > MOST_COUNTED:
            self._failures.popitem(last=False)
