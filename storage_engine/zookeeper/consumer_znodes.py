"""The znodes of groups that share partitions through ZooKeeper: each class owns a path and its
content.

/consumers/<group>/ids/<consumer>             ephemeral   {"topic": streams, …}
/consumers/<group>/owners/<topic>/<partition> ephemeral   the consumer's id
/consumers/<group>/offsets/<topic>/<partition>            the next offset to read, in decimal
/consumers/<group>/sessions/<session>         ephemeral   what closes the session: `SessionZNode`

The content of the first three is exactly what Kafka documents; the last is Headrace's own. The
document's `<broker>-` before the number of the partition is left out: leaders move. Source: R-CLI3.
"""

import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znode_json import (
    ZnodeFormatError,
    decode_object,
    encode_object,
    in_range,
    int_field,
)

_NUMBER = re.compile(rb"[0-9]{1,19}")
_NOT_OF_A_NAME = re.compile("[/\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff]")
"""The characters that ZooKeeper refuses in the name of a node."""
_OFFSETS = range(2**63)
_STREAMS = range(1, 2**31)


class ConsumerGroupPaths:
    """The paths of one group."""

    PARENT: ClassVar[str] = "/consumers"

    def __init__(self, group: str) -> None:
        self.root = f"{self.PARENT}/{group}"
        self.ids = f"{self.root}/ids"
        self.owners = f"{self.root}/owners"
        self.offsets = f"{self.root}/offsets"
        self.sessions = f"{self.root}/sessions"

    def id(self, consumer: str) -> str:
        return f"{self.ids}/{consumer}"

    def owner(self, tp: TopicPartition) -> str:
        return f"{self.owners}/{tp.topic}/{tp.partition}"

    def offset(self, tp: TopicPartition) -> str:
        return f"{self.topic_offsets(tp.topic)}/{tp.partition}"

    @staticmethod
    def session_name(session_id: int) -> str:
        """Hexadecimal, as ZooKeeper's own logs write it."""
        return f"{session_id % 2**64:x}"

    def session(self, session_id: int) -> str:
        return f"{self.sessions}/{self.session_name(session_id)}"

    def topic_offsets(self, topic: str) -> str:
        return f"{self.offsets}/{topic}"


def group_problem(group: str) -> str | None:
    """Return why `group` can't be part of a path, or None when it can."""
    if group in (".", "..") or _NOT_OF_A_NAME.search(group):
        return f"the group '{group}' can't be a part of a path in ZooKeeper"
    return None


def new_consumer_id() -> str:
    """Return `<host>:<uuid>` of this machine, different in each call."""
    return f"{socket.gethostname()}:{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class ConsumerIdZNode:
    """The streams of one consumer by topic, one at least."""

    streams: Mapping[str, int]

    def encode(self) -> bytes:
        return encode_object(dict(sorted(self.streams.items())))

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ConsumerIdZNode":
        fields = decode_object(path, data)
        return cls({topic: int_field(path, fields, topic, _STREAMS) for topic in fields})


class OffsetZNode:
    """The offset of the next record that a group reads of a partition: a bare number."""

    @staticmethod
    def encode(offset: int) -> bytes:
        return b"%d" % offset

    @staticmethod
    def decode(path: str, data: bytes) -> int:
        if not _NUMBER.fullmatch(data):
            raise ZnodeFormatError(f"znode {path} holds {data[:40]!r} where an offset is expected")
        return in_range(path, "the offset", int(data), _OFFSETS)
