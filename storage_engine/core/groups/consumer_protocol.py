"""The messages between members of a classic group of consumers, as far as its coordinator reads
them.

Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_NUMBER = struct.Struct(">i")
_NO_USER_DATA = _NUMBER.pack(-1)

FIRST_WITH_OWNED = 1
FIRST_WITH_RACK = 3


def topic_count(metadata: bytes) -> int:
    """Return how many topics a member's metadata claims to have."""
    return max(0, _COUNT.unpack_from(metadata)[1]) if len(metadata) >= _COUNT.size else 0


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a member's metadata; None when it can't be decoded."""
    try:
        _, count = _COUNT.unpack_from(metadata)
        position = _COUNT.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            raw = metadata[position : position + length]
            if length < 0 or len(raw) != length:
                return None
            topics.append(raw.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


class MemberSubscription(NamedTuple):
    """A member's metadata. Members of version 0 do not say what they own."""

    version: int
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def decode_subscription(metadata: bytes) -> MemberSubscription | None:
    """Return a member's subscription; None when it can't be decoded."""
    reader = _Reader(metadata)
    try:
        version = reader.int16()
        topics = frozenset(reader.string() for _ in range(reader.count()))
        reader.blob()
        owned = reader.partitions() if version >= FIRST_WITH_OWNED else {}
        rack_id = None
        if version >= FIRST_WITH_RACK:
            reader.int32()
            rack_id = reader.nullable_string()
    except (struct.error, UnicodeDecodeError):
        return None
    return MemberSubscription(version, topics, owned, rack_id)


class ReadAssignment(NamedTuple):
    partitions: Mapping[str, frozenset[int]]
    user_data: bytes
    """Bytes that only the assignor of the group's leader understands."""


def read_assignment(assignment: bytes) -> ReadAssignment | None:
    """Return the partitions by topic, of which there are none in an empty assignment; None when it
    can't be decoded."""
    if not assignment:
        return ReadAssignment({}, b"")
    reader = _Reader(assignment)
    try:
        reader.int16()
        return ReadAssignment(reader.partitions(), reader.blob())
    except (struct.error, UnicodeDecodeError):
        return None


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode an assignment without user data, in the version of the member's subscription."""
    parts = [_COUNT.pack(version, len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        name, ordered = topic.encode(), sorted(numbers)
        parts.append(_LENGTH.pack(len(name)) + name)
        parts.append(struct.pack(f">i{len(ordered)}i", len(ordered), *ordered))
    return b"".join([*parts, _NO_USER_DATA])


class _Reader:
    """Reads fields one after the other; struct.error where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        (value,) = _LENGTH.unpack(self._take(_LENGTH.size))
        return int(value)

    def int32(self) -> int:
        (value,) = _NUMBER.unpack(self._take(_NUMBER.size))
        return int(value)

    def count(self) -> int:
        """Read the number of elements, each of which takes a byte or more."""
        count = self.int32()
        if count > len(self._data) - self._position:
            raise struct.error("there are fewer bytes than elements")
        return max(0, count)

    def string(self) -> str:
        return self._take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def blob(self) -> bytes:
        return self._take(max(0, self.int32()))

    def partitions(self) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for _ in range(self.count()):
            topic, count = self.string(), self.count()
            numbers = struct.unpack(f">{count}i", self._take(_NUMBER.size * count))
            found[topic] = found.get(topic, frozenset()) | frozenset(numbers)
        return found

    def _take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        if length < 0 or len(taken) != length:
            raise struct.error("the bytes end too early")
        self._position += length
        return taken
