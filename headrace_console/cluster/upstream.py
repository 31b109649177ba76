"""The connections to the cluster for one principal, with their limits.

A log-in has an upstream of its own, so nobody sees what another user's rights have fetched; on an
open cluster all share one. Clients of the library are for one thread at a time: a call borrows an
idle one. Source: R-CON2, R-CON3.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from headrace_console.cluster.broker_lines import CLIENT_ID, BrokerLines
from storage_engine.client.cluster import Cluster
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import HeadraceError
from storage_engine.core.security.security_protocol import SecurityProtocol

REQUEST_TIMEOUT_MS = 2_500
"""The timeout of one request; a page shows the answers of the other brokers."""
DEADLINE_MS = 7_000
"""The limit of a call with its retries, such as a change that waits for a new leader."""
ANSWER_TIMEOUT_S = 10.0
"""The longest wait of a page."""
MOST_CLIENTS = 6
"""The most concurrent calls of one principal; others wait, for ANSWER_TIMEOUT_S at most."""

_BUSY = "all connections of this log-in are busy; try again in a moment"

Result = TypeVar("Result")
Closed = TypeVar("Closed", Cluster, BrokerLines)


class Upstream:
    """The connections of one principal. Its calls block: the server runs them on threads."""

    def __init__(
        self, bootstrap_servers: str, security: ClientSecurity | None, *, user: str | None
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.security = security
        self.user = user
        self._idle: deque[Cluster] = deque()
        self._idle_lines: deque[BrokerLines] = deque()
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def is_secured(self) -> bool:
        """Whether the cluster authenticates its clients."""
        return self.security is not None and self.security.sasl is not None

    @property
    def uses_tls(self) -> bool:
        protocol = None if self.security is None else self.security.protocol
        return protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    def client(self, *, deadline_ms: int = DEADLINE_MS) -> Cluster:
        """Return a new client of the library, with the console's limits. Opens no connection."""
        return Cluster(
            self.bootstrap_servers,
            client_id=CLIENT_ID,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            deadline_ms=deadline_ms,
            bootstrap_timeout_ms=REQUEST_TIMEOUT_MS,
            unknown_topic_wait_ms=1_000,
            security=self.security,
        )

    def call(self, work: Callable[[Cluster], Result]) -> Result:
        """Return the result of `work`, which has a client for itself meanwhile."""
        return self._with(self._idle, self.client, work)

    def ask_brokers(self, work: Callable[[BrokerLines], Result]) -> Result:
        """Return the result of `work`, which has lines to all brokers for itself meanwhile."""
        return self._with(self._idle_lines, lambda: BrokerLines(self.security), work)

    def _with(
        self, idle: deque[Closed], new: Callable[[], Closed], work: Callable[[Closed], Result]
    ) -> Result:
        if not self._room.acquire(timeout=ANSWER_TIMEOUT_S):
            raise HeadraceError(_BUSY)
        try:
            try:
                thing = idle.pop()
            except IndexError:
                thing = new()
            try:
                return work(thing)
            finally:
                self._give_back(thing, idle)
        finally:
            self._room.release()

    def _give_back(self, thing: Closed, idle: deque[Closed]) -> None:
        with self._lock:
            if not self._closed:
                idle.append(thing)
                return
        thing.close()

    def close(self) -> None:
        """Close idle clients; one in use is closed when it is given back."""
        with self._lock:
            self._closed = True
        for idle in (self._idle, self._idle_lines):
            with contextlib.suppress(IndexError):
                while True:
                    idle.pop().close()
