"""The messages between members of a group of consumers, which the coordinator passes on without
decoding them. The format is that of other clients, so that a group can be mixed.

    Subscription   bytes  meaning                Assignment     bytes  meaning
    version          2    what follows may       version          2
                          have more fields
    topics                int32 count, then      topics                int32 count, then topic and
                          strings                                      int32 count of int32
    user data             int32 length, bytes    user data             int32 length, bytes

A string is an int16 length and UTF-8. Version 0 is written; of newer ones the fields above are
read. Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json.
"""

import struct
from collections.abc import Iterable

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ids import TopicPartition, numbers_by_topic

_HEAD = struct.Struct(">hi")
_VERSION = 0
_NO_USER_DATA = struct.pack(">i", 0)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode the metadata with which a member joins."""
    names = sorted(topics)
    parts = [_HEAD.pack(_VERSION, len(names))]
    parts += [_string(name) for name in names]
    return b"".join([*parts, _NO_USER_DATA])


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment that the leader gives a member."""
    topics = numbers_by_topic(sorted(partitions))
    parts = [_HEAD.pack(_VERSION, len(topics))]
    for topic, numbers in topics.items():
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join([*parts, _NO_USER_DATA])


def decode_assignment(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment, which may be empty. CorruptRecordError when the bytes are no
    assignment."""
    if not assignment:
        return ()
    partitions: list[TopicPartition] = []
    try:
        _, count = _HEAD.unpack_from(assignment)
        position = _HEAD.size
        for _ in range(count):
            (length,) = struct.unpack_from(">h", assignment, position)
            position += 2
            topic = assignment[position : position + length].decode()
            (numbers,) = struct.unpack_from(">i", assignment, position + length)
            position += length + 4
            found = struct.unpack_from(f">{numbers}i", assignment, position)
            position += 4 * numbers
            partitions += [TopicPartition(topic, number) for number in found]
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptRecordError(f"an assignment of {len(assignment)} bytes: {error}") from None
    return tuple(sorted(partitions))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
