"""Closes sessions of others: of a predecessor, or of a broker or consumer that is known to be dead.

Whoever knows a session's id and password takes it over by connecting with them, and can close it.
ZooKeeper then removes its ephemeral nodes as at an expiry, and refuses whatever else comes for that
session; an owner that lives is told that it is over. Several may close one session: the others find
that it has expired. Source: R-CTL4 for a predecessor, which is dead as its successor holds the lock
of the log dir; R-CTL12 for other brokers, R-CLI3 for consumers.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from storage_engine.core.errors import HeadraceError
from storage_engine.core.settings.zookeeper_settings import ENABLE
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.kazoo_driver import make_client, stop_client, tls_problem
from storage_engine.zookeeper.session_credentials import SessionCredentials, load_credentials

log = logging.getLogger(__name__)

MAX_AT_ONCE = 4
"""The most sessions that are being closed at one time, each on a thread of its own."""
MAX_WAIT_MS = 6_000
"""The longest that one attempt waits for ZooKeeper."""


class ZooKeeperUnreachableError(HeadraceError):
    """No ZooKeeper server answers."""


def unreachable(
    connect: ConnectString, client: KazooClient, access: ZooKeeperAccess
) -> ZooKeeperUnreachableError:
    """Return the error for a client that has found no server."""
    if problem := tls_problem(client):
        return ZooKeeperUnreachableError(f"no TLS with ZooKeeper at {connect}: {problem}")
    secured = "one that speaks TLS alone, as that of a secured cluster does for its brokers, needs"
    hint = "" if access.tls else f"; {secured} {ENABLE}"
    return ZooKeeperUnreachableError(
        f"can't reach ZooKeeper at {connect}: is it running? check zookeeper.connect{hint}"
    )


class TakenSession:
    """A connection in the place of a session's owner. Its end closes the session."""

    def __init__(self, client: KazooClient, credentials: SessionCredentials | None) -> None:
        self.client = client
        # kazoo replaces a session that has expired with a new one.
        self.was_alive = (
            credentials is not None
            and client.client_id is not None
            and client.client_id[0] == credentials.session_id
        )
        self.is_closed = False
        """After the block: whether ZooKeeper has answered in time."""


@contextlib.contextmanager
def taken_over(
    connect: ConnectString,
    credentials: SessionCredentials | None,
    session_timeout_ms: int,
    *,
    access: ZooKeeperAccess,
    wait_ms: int,
) -> Iterator[TakenSession]:
    """Connect as the owner of a session (None: as a new one), and close the session after the
    block; each waits `wait_ms` at most. ZooKeeperUnreachableError when no server answers."""
    client = make_client(
        connect.hosts,
        session_timeout_ms=session_timeout_ms,
        client_id=None if credentials is None else (credentials.session_id, credentials.password),
        access=access,
    )
    taken = None
    try:
        if not client.start_async().wait(wait_ms / 1000):
            raise unreachable(connect, client, access)
        taken = TakenSession(client, credentials)
        yield taken
    except KazooException as error:
        raise ZooKeeperUnreachableError(f"ZooKeeper at {connect} refuses: {error!r}") from None
    finally:
        is_closed = stop_client(client, wait_ms)
        if taken is not None:
            taken.is_closed = is_closed


def prepare(
    connect: ConnectString,
    data_dir: Path | None,
    session_timeout_ms: int,
    *,
    access: ZooKeeperAccess,
    wait_ms: int,
) -> None:
    """Close the session whose credentials are in `data_dir`, create the chroot; blocks at most
    about `wait_ms`. ZooKeeperUnreachableError when no server answers."""
    previous = load_credentials(data_dir) if data_dir is not None else None
    if previous is None and not connect.chroot:
        return
    with taken_over(
        connect, previous, session_timeout_ms, access=access, wait_ms=wait_ms
    ) as session:
        if previous is not None:
            log.info(
                "predecessor's session id=0x%x %s",
                previous.session_id,
                "closed" if session.was_alive else "has expired",
            )
        if connect.chroot:
            session.client.ensure_path(connect.chroot)


class _Wanted(NamedTuple):
    credentials: SessionCredentials
    on_done: Callable[[bool], None]


class ThreadedForeignSessions:
    """Implements `core.ports.ForeignSessions`: each attempt on a thread, as ZooKeeper may not
    answer, and the broker's own threads are those that acknowledgements wait for."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        loop_call_soon: Callable[[Callable[[], None]], object],
        *,
        access: ZooKeeperAccess,
    ) -> None:
        """`loop_call_soon` is the loop's `call_soon_threadsafe`."""
        self._connect = ConnectString.parse(connect)
        self._session_timeout_ms = session_timeout_ms
        self._loop_call_soon = loop_call_soon
        self._access = access
        self._waiting: deque[_Wanted] = deque()
        self._under_way = 0
        self._closed = False

    def end(self, session_id: int, password: bytes, on_done: Callable[[bool], None]) -> None:
        """Called on the loop."""
        credentials = SessionCredentials(session_id=session_id, password=password)
        self._waiting.append(_Wanted(credentials, on_done))
        self._start_some()

    def close(self) -> None:
        """Begin nothing more and call nobody any more; what is under way ends by itself."""
        self._closed = True
        self._waiting.clear()

    def _start_some(self) -> None:
        while self._waiting and self._under_way < MAX_AT_ONCE:
            self._under_way += 1
            wanted = self._waiting.popleft()
            thread = threading.Thread(
                target=self._work, args=(wanted,), name="session-end", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The system gives no more threads.
                log.warning("session 0x%x not closed: %s", wanted.credentials.session_id, error)
                self._loop_call_soon(partial(self._ended, wanted, is_over=False))

    def _work(self, wanted: _Wanted) -> None:
        is_over = False
        try:
            is_over = self._end(wanted.credentials)
        except HeadraceError as error:
            log.warning("session 0x%x not closed: %s", wanted.credentials.session_id, error)
        except Exception:
            log.exception("session 0x%x not closed", wanted.credentials.session_id)
        # The loop may be closed by now: the process ends.
        with contextlib.suppress(RuntimeError):
            self._loop_call_soon(lambda: self._ended(wanted, is_over=is_over))

    def _end(self, credentials: SessionCredentials) -> bool:
        with taken_over(
            self._connect,
            credentials,
            self._session_timeout_ms,
            access=self._access,
            wait_ms=min(self._session_timeout_ms, MAX_WAIT_MS),
        ) as taken:
            pass
        is_over = taken.is_closed or not taken.was_alive
        outcome = "had ended" if not taken.was_alive else "closed" if is_over else "not closed"
        log.info("session 0x%x of a dead process: %s", credentials.session_id, outcome)
        return is_over

    def _ended(self, wanted: _Wanted, *, is_over: bool) -> None:
        self._under_way -= 1
        if self._closed:
            return
        self._start_some()
        wanted.on_done(is_over)
