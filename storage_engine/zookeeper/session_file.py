"""The id and password of the broker's ZooKeeper session, kept in its log directory (R-CTL4).

The reader holds the lock of the log directory, so that the session's owner is dead.
"""

import contextlib
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

FILE_NAME = "zookeeper.session"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCredentials:
    """The credentials that reconnect to a session, and so can close it."""

    session_id: int
    password: bytes = field(repr=False)


def load_credentials(data_dir: Path) -> SessionCredentials | None:
    """Return the last session's credentials; None when there are none or the file is damaged (the
    session then expires)."""
    path = data_dir / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
        return SessionCredentials(
            session_id=int(fields["session_id"]), password=bytes.fromhex(fields["password"])
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("session file ignored path=%s reason=%s", path, error)
        return None


def save_credentials(data_dir: Path, credentials: SessionCredentials) -> None:
    """Replace the file atomically; it is not flushed, since after a power loss the session has
    expired."""
    temporary = data_dir / f"{FILE_NAME}.tmp"
    content = json.dumps(
        {"session_id": credentials.session_id, "password": credentials.password.hex()}
    )
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
    temporary.replace(data_dir / FILE_NAME)


def remove_credentials(data_dir: Path) -> None:
    """Remove the file after the session has been closed."""
    with contextlib.suppress(OSError):
        (data_dir / FILE_NAME).unlink(missing_ok=True)
