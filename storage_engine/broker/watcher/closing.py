"""Closes the session of a broker that has died, by whichever server of ZooKeeper answers first.

The servers are asked one after the other, each a moment after the one before it, without waiting
for its answer: one that is on a dark machine, maybe the broker's, costs no more than that moment.
Several that close one session do no harm. Attempts go on while the session may live.
"""

import enum
import logging
import queue
import random
import sys
import threading
import time

from storage_engine.broker.watcher.told import WatchedBroker, session_of
from storage_engine.core.errors import HeadraceError
from storage_engine.core.printable import printable
from storage_engine.zookeeper.access import ANYBODY, ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.foreign_sessions import taken_over
from storage_engine.zookeeper.session_credentials import SessionCredentials

log = logging.getLogger(__name__)

HEAD_START_S = 0.2
"""How long one server is asked before the next one is, too."""
ATTEMPT_MS = 3_000
"""How long a server may take to connect, and as long to close."""
PAUSE_S = 0.2
PAUSE_MAX_S = 2.0
SESSION_TIMEOUTS = 2
"""After so many, since the death, the session has expired; or ZooKeeper has had no majority, and
the broker's successor closes it, or time does."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Outcome(enum.Enum):
    CLOSED = "closed"
    HAD_ENDED = "had ended"
    FAILED = "failed"


def close_session(first: bytes, last: bytes) -> int:
    """Close the session in the last line a broker wrote, with what is in the first; return the
    exit status."""
    died_s = time.monotonic()
    broker, credentials = WatchedBroker.decode(first), session_of(last)
    _log_to(broker.log_file)
    who = f"broker {broker.broker_id}: its process {broker.pid} has ended, and session"
    session = f"0x{credentials.session_id % 2**64:x}"
    give_up_s = died_s + SESSION_TIMEOUTS * broker.session_timeout_ms / 1000
    pause_s = PAUSE_S
    while (outcome := _closed_by_any(broker, credentials)) is _Outcome.FAILED:
        if time.monotonic() > give_up_s:
            log.error("%s %s was not closed: it has expired, or expires later", who, session)
            return 1
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    if outcome is _Outcome.CLOSED:
        log.warning("%s %s was closed %.3f s later", who, session, time.monotonic() - died_s)
    else:
        log.warning("%s %s had ended already", who, session)
    return 0


def _access(broker: WatchedBroker) -> ZooKeeperAccess:
    """Without credentials: a session is closed by whoever has its password."""
    if broker.tls is None:
        return ANYBODY
    # Loaded only where TLS is configured.
    from storage_engine.net.tls.contexts import zookeeper_context

    return ZooKeeperAccess(tls=zookeeper_context(broker.tls))


def _log_to(file: str | None) -> None:
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        handler = logging.FileHandler(file, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    logging.basicConfig(format=_FORMAT, handlers=[handler], force=True)


def _closed_by_any(broker: WatchedBroker, credentials: SessionCredentials) -> _Outcome:
    """Ask all servers; return the first outcome, FAILED where all have failed."""
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
    servers = list(ConnectString.parse(broker.connect).servers)
    random.shuffle(servers)
    under_way = 0
    for server in servers:
        alone = ConnectString(servers=(server,))
        threading.Thread(
            target=lambda alone=alone: outcomes.put(_closed_by(alone, broker, credentials)),
            name=f"close-by-{alone}",
            daemon=True,
        ).start()
        under_way += 1
        try:
            outcome = outcomes.get(timeout=HEAD_START_S)
        except queue.Empty:
            continue
        under_way -= 1
        if outcome is not _Outcome.FAILED:
            return outcome
    for _ in range(under_way):
        if (outcome := outcomes.get()) is not _Outcome.FAILED:
            return outcome
    return _Outcome.FAILED


def _closed_by(
    server: ConnectString, broker: WatchedBroker, credentials: SessionCredentials
) -> _Outcome:
    try:
        access = _access(broker)
        with taken_over(
            server, credentials, ATTEMPT_MS, access=access, wait_ms=ATTEMPT_MS
        ) as taken:
            pass
    except (HeadraceError, OSError) as error:
        log.warning("session 0x%x: %s", credentials.session_id % 2**64, printable(str(error)))
        return _Outcome.FAILED
    except Exception:
        # The other servers, and the next attempt, may do better.
        log.exception("session 0x%x not closed", credentials.session_id % 2**64)
        return _Outcome.FAILED
    if not taken.was_alive:
        return _Outcome.HAD_ENDED
    return _Outcome.CLOSED if taken.is_closed else _Outcome.FAILED
