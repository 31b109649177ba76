"""The topics in the metadata that a member of protocol type "consumer" joins with. Metadata that
can't be read subscribes to no known topic, and is never an error of the group.

    field     bytes  meaning
    version     2
    topics           int32 count, then strings (int16 length, UTF-8)
    ...              user data and what later versions add

Source: Kafka's ConsumerProtocolSubscription.json.
"""

import struct

CONSUMER = "consumer"
"""The protocol type of consumers."""

_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


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
