"""Prepares a broker's session: ends the session of its predecessor, and creates the chroot.

The caller holds the lock of the log directory, so the predecessor is dead, and its session is
closed at once instead of being waited for (R-CTL4).
"""

import logging
from pathlib import Path

from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.foreign_sessions import taken_over
from storage_engine.zookeeper.session_file import load_credentials

log = logging.getLogger(__name__)


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
