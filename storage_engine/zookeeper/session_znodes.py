"""The znode by which a broker lets the others close its session when it is dead.

    /headrace/sessions/<broker id>-<session id, hexadecimal>   ephemeral

    field      meaning
    version    1
    password   of the session, hexadecimal: with it and the id any client can close the session
    process    absent where the broker's system does not say: boot_id, pid_namespace,
               time_namespace, pid, start_ticks (field 22 of /proc/<pid>/stat)

A session belongs to one incarnation, so the node does, and never changes. The id of the session to
close is that of the node's owner: whoever writes such a node can name no session but its own. With
`zookeeper.set.acl` only brokers read it. Source: R-CTL12.
"""

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import ProcessIdentity
from storage_engine.zookeeper.znode_json import (
    BROKER_IDS,
    ZnodeFormatError,
    decode_object,
    encode_object,
    int_field,
    number_named,
    required_value,
    str_field,
)

_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{1,16})")
_PASSWORD = re.compile(r"([0-9a-f]{2}){1,64}")
"""ZooKeeper's have 16 bytes."""
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}")
_INODES = range(2**64)
_PIDS = range(1, 2**22 + 1)
"""The kernel's highest number is 4,194,304."""
_TICKS = range(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionZNode:
    """A live session of a broker."""

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
        """The broker that a node's name tells; None for a name of no such node."""
        match = _NAME.fullmatch(name)
        number = None if match is None else number_named(match[1], BROKER_IDS)
        return None if number is None else BrokerId(number)

    def encode(self) -> bytes:
        fields: dict[str, Any] = {"version": 1, "password": self.password.hex()}
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
        path = f"{cls.PARENT}/{name}"
        fields = decode_object(path, data)
        password = str_field(path, fields, "password", max_bytes=128)
        if not _PASSWORD.fullmatch(password):
            raise ZnodeFormatError(f"znode {path}: 'password' is not hexadecimal")
        process = None
        if "process" in fields:
            process = _process(path, required_value(path, fields, "process"))
        return cls(password=bytes.fromhex(password), process=process)


def _process(path: str, fields: object) -> ProcessIdentity:
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
