"""Prepares a broker's session: ends the session of its predecessor, and creates the chroot.

The caller holds the lock of the log directory, so the predecessor is dead, and its session is
closed at once instead of being waited for (R-CTL4).
"""

import logging
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from storage_engine.core.errors import HeadraceError
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.kazoo_driver import make_client, stop_client, tls_problem
from storage_engine.zookeeper.session_file import load_credentials

log = logging.getLogger(__name__)


class ZooKeeperUnreachableError(HeadraceError):
    """No ZooKeeper server answers."""


def unreachable(connect: ConnectString, client: KazooClient) -> ZooKeeperUnreachableError:
    """Return the error for a client that has found no server."""
    if problem := tls_problem(client):
        return ZooKeeperUnreachableError(f"no TLS with ZooKeeper at {connect}: {problem}")
    return ZooKeeperUnreachableError(
        f"can't reach ZooKeeper at {connect}: is it running? check zookeeper.connect"
    )


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
    client = make_client(
        connect.hosts,
        session_timeout_ms=session_timeout_ms,
        client_id=(previous.session_id, previous.password) if previous else None,
        access=access,
    )
    try:
        if not client.start_async().wait(wait_ms / 1000):
            raise unreachable(connect, client)
        if previous is not None:
            # kazoo replaces a session that has expired with a new one.
            alive = client.client_id is not None and client.client_id[0] == previous.session_id
            log.info(
                "predecessor's session id=0x%x %s",
                previous.session_id,
                "closed" if alive else "has expired",
            )
        if connect.chroot:
            client.ensure_path(connect.chroot)
    except KazooException as error:
        raise ZooKeeperUnreachableError(f"ZooKeeper at {connect} refuses: {error!r}") from None
    finally:
        stop_client(client, wait_ms)
