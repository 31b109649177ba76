"""Reports the sink's commits to the driver's listener.

Spark commits a micro-batch in a process of its own, and nothing of it reaches the progress of the
query. So that process sends a note to each listener of this user on this machine, over a socket
that only this user can reach. A note without a listener, or with one that reads too late, is lost:
it costs a commit some 20 µs, and never its success.
"""

import contextlib
import json
import os
import socket
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

COMMITTED = "committed"
ALREADY_COMMITTED = "already committed"

LISTENERS_MAX = 16
"""The most listeners that a note is sent to."""

NOTE_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommit:
    """One commit of a streaming query's micro-batch."""

    query: str
    sink: str
    batch_id: int
    tasks: int
    rows: int
    duration_ms: int
    outcome: str
    at_ms: int = 0
    """Wall time in ms, which `tell_commit` sets."""


def notes_folder() -> Path:
    """The folder with the sockets of this user's listeners."""
    return Path(tempfile.gettempdir()) / f"headrace-commits-{os.getuid()}"


def tell_commit(commit: SinkCommit) -> None:
    """Send a note to each listener, without waiting. Never raises."""
    with contextlib.suppress(OSError):
        folder = notes_folder()
        if not _is_ours(folder):
            return
        note = json.dumps({**asdict(commit), "at_ms": int(time.time() * 1000)}).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path in sorted(folder.iterdir())[:LISTENERS_MAX]:
                with contextlib.suppress(OSError):
                    sender.sendto(note[:NOTE_MAX_BYTES], str(path))


class CommitNotes:
    """Receives the notes for a listener."""

    def __init__(self) -> None:
        """OSError where no socket can be made; then there are no notes."""
        folder = notes_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(folder):
            raise PermissionError(f"{folder} belongs to somebody else")
        _remove_dead(folder)
        self._path = folder / f"{os.getpid()}-{id(self):x}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))

    def take(self) -> list[SinkCommit]:
        """Return the commits that have arrived since the last call."""
        found = []
        with contextlib.suppress(OSError):
            while True:
                note = self._socket.recv(NOTE_MAX_BYTES)
                with contextlib.suppress(ValueError, TypeError):
                    found.append(SinkCommit(**json.loads(note)))
        return found

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    """Whether this user alone may use the folder: in /tmp another user may have made it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    is_folder = folder.is_dir() and not folder.is_symlink()
    return is_folder and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _remove_dead(folder: Path) -> None:
    """Remove the sockets of drivers that were killed."""
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)
