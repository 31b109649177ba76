"""The credentials that close a broker's session with ZooKeeper, and their places for others.

A session's password is no secret: ZooKeeper computes it from the session's id, which stands in the
stat of every node that the session owns. Whoever reaches a ZooKeeper can close all sessions there,
so that TLS and its `ssl.clientAuth=need`, or a firewall, must keep strangers out. The password is
stored because its computation is internal to ZooKeeper.

- In a file of the broker's log dir, for its successor (R-CTL4). Its reader holds the lock
  of the directory, so that the session's owner is dead: on the same boot of the same machine, and
  in the very directory. That is checked, since a copy of the directory has a lock of its own while
  the owner may live. Other files' sessions expire.
- In an ephemeral znode, for the other brokers, with the process that they may know to be dead
  (R-CTL12):

    /headrace/sessions/<broker id>-<session id, hexadecimal>

    field      meaning
    version    1
    password   of the session, hexadecimal: with it and the id a client can close the session
    process    absent where the broker's system does not say: boot_id, pid_namespace,
               time_namespace, pid, start_ticks (field 22 of /proc/<pid>/stat)

- In such a znode of a consumer whose group meets in ZooKeeper, for the other members (R-CLI3):

    /consumers/<group>/sessions/<session id, hexadecimal>

A session belongs to one incarnation, so its znode does, and never changes. The id of the session to
close is that of the znode's owner: whoever writes such a node can name no session but its own.

Only a process that was seen alive as the one that is named, and then ended, is proof that the
session's owner is dead.

Source: R-CTL12, R-CLI3.
"""

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from storage_engine.core.control.death_proof import is_same_process, may_be_local
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import OpenProcess, Processes, ProcessIdentity
from storage_engine.zookeeper.znode_json import (
    BROKER_IDS,
    JsonValue,
    ZnodeFormatError,
    decode_object,
    encode_object,
    int_field,
    number_named,
    required_value,
    str_field,
)

OWNER_ONLY = 0o600


def for_owner(path: str, flags: int) -> int:
    """The `opener` of `open` for a new file that only its owner may read and write."""
    return os.open(path, flags, OWNER_ONLY)


log = logging.getLogger(__name__)

FILE_NAME = "zookeeper.session"
_KERNELS_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{1,16})")
_PASSWORD = re.compile(r"([0-9a-f]{2}){1,64}")
"""ZooKeeper's passwords have 16 bytes."""
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}")
_INODES = range(2**64)
_PIDS = range(1, 2**22 + 1)
"""The kernel's highest number is 4,194,304."""
_TICKS = range(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCredentials:
    """The credentials that reconnect to a session, and so can close it."""

    session_id: int
    password: bytes = field(repr=False)


def load_credentials(data_dir: Path) -> SessionCredentials | None:
    """Return the last session's credentials; None when there are none, or the file is damaged or
    was written elsewhere (the session then expires)."""
    path = data_dir / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
        if fields["place"] != _place(data_dir):
            log.info("session file ignored path=%s reason=it is a copy, or of another boot", path)
            return None
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
        {
            "session_id": credentials.session_id,
            "password": credentials.password.hex(),
            "place": _place(data_dir),
        }
    )
    with open(temporary, "w", opener=for_owner) as file:
        file.write(content)
    temporary.replace(data_dir / FILE_NAME)


def _place(data_dir: Path) -> dict[str, str | int]:
    """The kernel's boot, where the system reports it, and the directory; only one process at a
    time can hold its lock."""
    found = data_dir.stat()
    boot_id = ""
    with contextlib.suppress(OSError):
        boot_id = _KERNELS_BOOT_ID.read_text().strip()
    return {"boot_id": boot_id, "device": found.st_dev, "inode": found.st_ino}


def remove_credentials(data_dir: Path) -> None:
    """Remove the file after the session has been closed."""
    with contextlib.suppress(OSError):
        (data_dir / FILE_NAME).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionZNode:
    """A live session of a broker, or of a consumer; names and paths are of brokers' alone."""

    PARENT: ClassVar[str] = "/headrace/sessions"

    password: bytes = field(repr=False)
    process: ProcessIdentity | None = None

    @staticmethod
    def name(broker_id: int, session_id: int) -> str:
        return f"{broker_id}-{session_id % 2**64:x}"

    @classmethod
    def path(cls, broker_id: int, session_id: int) -> str:
        return f"{cls.PARENT}/{cls.name(broker_id, session_id)}"

    @staticmethod
    def broker_of(name: str) -> BrokerId | None:
        """Return the broker id in a node's name; None for a name of another form."""
        match = _NAME.fullmatch(name)
        number = None if match is None else number_named(match[1], BROKER_IDS)
        return None if number is None else BrokerId(number)

    def encode(self) -> bytes:
        fields: dict[str, JsonValue] = {"version": 1, "password": self.password.hex()}
        if self.process is not None:
            fields["process"] = {
                "boot_id": self.process.boot_id,
                "pid_namespace": self.process.pid_namespace,
                "time_namespace": self.process.time_namespace,
                "pid": self.process.pid,
                "start_ticks": self.process.start_ticks,
            }
        return encode_object(fields)

    @classmethod
    def decode(cls, name: str, data: bytes) -> "SessionZNode":
        return cls.decode_at(f"{cls.PARENT}/{name}", data)

    @classmethod
    def decode_at(cls, path: str, data: bytes) -> "SessionZNode":
        fields = decode_object(path, data)
        password = str_field(path, fields, "password", max_bytes=128)
        if not _PASSWORD.fullmatch(password):
            raise ZnodeFormatError(f"znode {path}: 'password' is not hexadecimal")
        process = None
        if "process" in fields:
            process = _process(path, required_value(path, fields, "process"))
        return cls(password=bytes.fromhex(password), process=process)


def _process(path: str, fields: JsonValue) -> ProcessIdentity:
    if not isinstance(fields, dict):
        raise ZnodeFormatError(f"znode {path}: 'process' must be an object")
    boot_id = str_field(path, fields, "boot_id", max_bytes=64)
    if not _BOOT_ID.fullmatch(boot_id):
        raise ZnodeFormatError(f"znode {path}: 'boot_id' is no id of a kernel")
    return ProcessIdentity(
        boot_id=boot_id,
        pid_namespace=int_field(path, fields, "pid_namespace", _INODES),
        time_namespace=int_field(path, fields, "time_namespace", _INODES),
        pid=int_field(path, fields, "pid", _PIDS),
        start_ticks=int_field(path, fields, "start_ticks", _TICKS),
    )


class WatchedSession:
    """A session, or a znode that is none, by the name of its znode."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session_id = 0
        self.process: OpenProcess | None = None
        """Not None while its process is known to run."""
        self.attempts = 0
        """The number of attempts to close it."""

    def watch(
        self, processes: Processes, node: SessionZNode, when_ended: Callable[[], None]
    ) -> bool:
        """Watch the process that the znode names, if it runs on this machine. Returns False where
        another process has its number."""
        named = node.process
        if named is None or not may_be_local(processes.own, named):
            return True
        process = processes.open(named.pid)
        if process is None:
            return True
        if not is_same_process(named, process.start_ticks):
            process.close()
            return False
        self.process = process
        process.when_ended(when_ended)
        return True

    def forget(self) -> None:
        """Stop watching the process."""
        process, self.process = self.process, None
        if process is not None:
            process.close()
